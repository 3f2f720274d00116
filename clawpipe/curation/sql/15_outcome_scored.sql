-- Rows to imitate or to prefer need a verifier score; rows to prefer may have a correction instead.
-- A setting lets imitation do without scores: then only failures are filtered.
-- Filtered: trajectories that no verifier scored.
select
    *,
    case
        when reward is null
            and not ($method = 'dpo' and len(corrected) > 0)
            and not ($method = 'sft' and $imitate = 'any')
        then 'no verifier score'
    end as reason
from previous
