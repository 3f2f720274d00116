-- Pairs of version 1 are recorded or text only, and name nobody.
select *, null::varchar as session_id, null::varchar as user_id from old
