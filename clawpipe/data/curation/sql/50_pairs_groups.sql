-- Keep groups with a success and a failure, and trajectories with a correction.
-- Why: the chosen side is always a success, because a model that learns to prefer the better of two failures learns to fail; and a
-- success is never rejected.
-- Filtered: rows of the other groups.
select
    *,
    case
        when len(corrected) > 0 then null
        when not bool_or(success is true) over (partition by group_id) then 'no success in its group'
        when not bool_or(success is not true) over (partition by group_id) then 'no failure in its group'
    end as reason
from previous
