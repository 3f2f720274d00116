-- Nothing that is nearly what evaluation asks may be trained on.
-- Why: a held-out question that is quoted in a chat, or asked in other words, is learnt from as well as the question itself.
-- What is near was found out before, see clawpipe.similarity.heldout; without that nothing is.
-- Set aside: rows in which a held-out question is quoted, and rows in which nearly the same was asked.
select previous.*, 'held-out ' || how as reason
from previous left join near_heldout using (trajectory_id)
