-- What is imitated or preferred has a verdict.
-- Set aside: trajectories that no verifier scored.
select *, case when reward is null then 'no verifier score' end as reason
from previous
