-- Pairs of version 1 are recorded or text only, and name nobody, nor where they come from.
select
    *, null::varchar as session_id, null::varchar as user_id,
    null::varchar as tools, null::struct(format varchar, file varchar, line bigint) as origin, null::varchar as extra
from old
