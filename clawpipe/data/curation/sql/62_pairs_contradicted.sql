-- Filter pairs that contradict each other.
-- Why: of two opposite preferences one undoes what the other teaches.
-- Filtered: both of two pairs of one item with equal prompts in which the sides are exchanged.
select
    * exclude (asked, chosen_says, rejected_says),
    case when contradicted(hash(item_id, asked), chosen_says, rejected_says) then 'opposite of another pair' end as reason
from previous
