-- Rows to imitate or to prefer need a score of the whole or, to imitate or to label, of a turn; rows to prefer may have a correction instead.
-- A setting lets imitation do without scores: then only failures are filtered.
-- Filtered: trajectories that nobody scored.
select
    *,
    case
        when reward is null
            and not ($by_pairs and len(corrected) > 0)
            and not ($method in ('sft', 'kto') and judged_by_turns)
            and not ($method = 'sft' and $imitate = 'any')
        then 'no verifier score'
    end as reason
from previous
