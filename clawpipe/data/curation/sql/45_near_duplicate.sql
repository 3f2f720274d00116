-- Filter near-duplicates of an earlier trajectory of this batch or of an earlier night.
-- Why: texts that are often copied would weigh more and more. But rollouts of one item are naturally similar, and to a
-- method that compares them each is an observation; so within an item only imitation filters near-duplicates.
-- clawpipe.data.similarity.duplicates finds them; without its table there are none.
-- Filtered: every row that repeats another, also through a chain of repetitions.
with repeating as (
    select distinct trajectory_id
    from near_duplicate
    where (not same_item or $method = 'sft')
        and (not within or repeats in (select trajectory_id from previous))
)
select previous.*, case when trajectory_id in (from repeating) then 'near-duplicate' end as reason
from previous
