-- Filter pairs that are named twice, and pairs that contradict each other. This is a step of stored pairs alone; 62_pairs_contradicted is the
-- same for those that a night makes of its trajectories.
-- Why: a pair that is named twice would count twice; and of two opposite preferences one undoes what the other teaches.
-- Filtered: later copies of a pair, and both of two pairs with equal prompts in which the sides are exchanged.
select
    * exclude (asked, chosen_says, rejected_says),
    case
        when row_number() over (partition by trajectory_id order by file_index, file_row_number) > 1 then 'pair given twice'
        when contradicted(asked, chosen_says, rejected_says) then 'opposite of another pair'
    end as reason
from previous
