-- What says nearly the same as an earlier trajectory that is here to be learnt from, or was so on an earlier night.
-- Why: what is copied and retold often would weigh more and more. But rollouts of one item resemble each other by nature, and to a
-- method that compares them each is an observation; so within an item only imitation counts nearly the same once.
-- What is near was found out before, see clawpipe.similarity.duplicates; without that nothing is.
-- Set aside: every row that repeats another, however far the first one is by a chain of repetitions.
with repeating as (
    select distinct trajectory_id
    from near_duplicate
    where (not same_item or $method = 'sft')
        and (not within or repeats in (select trajectory_id from previous))
)
select previous.*, case when trajectory_id in (from repeating) then 'near-duplicate' end as reason
from previous
