-- The same conversation counts once in its group.
-- Why: a preference between two conversations is one preference, however often they were drawn.
-- Filtered: all but the best-scored copy, ties broken by id.
select
    *,
    case
        when row_number() over (
            partition by group_id, body
            order by success desc nulls last, reward desc, trajectory_id
        ) > 1 then 'duplicate'
    end as reason
from previous
