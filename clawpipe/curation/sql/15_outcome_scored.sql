-- What is imitated or preferred has a verdict; or, to be preferred, a correction in it.
-- Imitation may be told to do without: then only what failed is left out.
-- Set aside: trajectories that no verifier scored.
select
    *,
    case
        when reward is null
            and not ($method = 'dpo' and len(corrected) > 0)
            and not ($method = 'sft' and $imitate = 'any')
        then 'no verifier score'
    end as reason
from previous
