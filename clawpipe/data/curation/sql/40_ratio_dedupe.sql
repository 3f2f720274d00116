-- The same draw counts once.
-- Why: for a ratio-based loss two independent draws of the same tokens are two observations; only one draw stored twice is a
-- duplicate. So the key is item, policy version, rollout index and text.
-- Filtered: all but the best-scored copy, ties broken by id.
select
    *,
    case
        when row_number() over (
            partition by item_id, policy_version, rollout_index, body
            order by reward desc nulls last, success desc nulls last, trajectory_id
        ) > 1 then 'duplicate'
    end as reason
from previous
