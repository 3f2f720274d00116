-- Filter rows that are near to held-out questions.
-- Why: a held-out question that is quoted in a chat, or asked in other words, teaches the question as well.
-- clawpipe.data.similarity.heldout finds such rows; without its table there are none.
-- Filtered: rows in which a held-out question is quoted, and rows in which nearly the same was asked.
select previous.*, 'held-out ' || how as reason
from previous left join (select trajectory_id, min(how) as how from near_heldout group by trajectory_id) using (trajectory_id)
