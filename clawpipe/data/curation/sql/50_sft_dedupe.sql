-- The same conversation counts once.
-- Why: imitation of an answer needs one copy of it; frequent answers would otherwise weigh more and more every night.
-- Of copies with equal scores a whole one stays, since a cut one teaches the turns alone that somebody praised.
-- Filtered: all but the best-scored copy, ties broken by id.
select
    *,
    case
        when row_number() over (
            partition by body
            order by success desc nulls last, reward desc, ending in ('truncated', 'aborted'), trajectory_id
        ) > 1 then 'duplicate'
    end as reason
from previous
