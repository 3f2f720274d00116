-- Each turn of a conversation counts once.
-- Why: imitation of an answer needs one copy of it; frequent answers would otherwise weigh more and more every night.
-- Of copies with equal scores a whole one stays, since a cut one teaches the turns alone that somebody praised. Copies that teach other
-- turns, such as those of two logs with other weights, are no copies of each other.
-- Filtered: rows of which better-scored copies teach every turn, ties broken by id.
with ranked as (
    select
        trajectory_id, body, turns, numbers,
        row_number() over (
            partition by body
            order by success desc nulls last, reward desc, ending in ('truncated', 'aborted'), trajectory_id
        ) as place
    from previous
),
taught as (
    select trajectory_id, body, place, unnest([coalesce(numbers[k], -k) for t, k in turns if t.kind = 'main']) as turn
    from ranked
),
teachers as (
    select arg_min(trajectory_id, place) as trajectory_id from taught group by body, turn
)
select *, case when trajectory_id not in (from teachers) then 'duplicate' end as reason
from previous
