-- Limit the share of each session in the batch.
-- Why last: filtering more rows afterwards would enlarge a share.
-- All sessions are cut to one number of rows, the largest with which none exceeds its share of what is then left. If there is
-- none, as with a share of a half and one session, no row of a session stays. A pair belongs to the session of its chosen side.
-- Filtered, if a setting limits it: rows beyond that number, drawn by lot.
with sizes as (
    select session_id, count(*) as size from previous
    where session_id is not null and $quotas_session_share::double is not null group by session_id
),
counted as (
    select list(size order by size) as sizes, list(sessions order by size) as sessions
    from (select size, count(*) as sessions from sizes group by size)
),
largest as (
    select largest_cap(sizes, sessions, (select count(*) from previous where session_id is null), $quotas_session_share::double) as cap
    from counted
),
cut as (
    select lot from previous where session_id in (select session_id from sizes)
    qualify row_number() over (partition by session_id order by lot) > (select cap from largest)
)
select *, case when lot in (from cut) then 'beyond the share of its session' end as reason
from previous
