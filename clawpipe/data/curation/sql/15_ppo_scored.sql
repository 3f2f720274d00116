-- A critic learns from rewards at the end and at single turns.
-- Filtered: trajectories that no verifier scored and none of whose main turns has a score.
select
    *,
    case when reward is null and len(list_filter(turn_scores, lambda s: s is not null)) = 0 then 'no score' end as reason
from previous
