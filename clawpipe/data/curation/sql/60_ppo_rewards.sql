-- Compute the reward of each turn: the turn's own score, and at the last main turn also the trajectory's reward.
-- Why: the critic estimates advantages, so zero-variance groups and groups of one are useful, too.
-- `turn_rewards` holds one reward per turn; `credit` only says which turns are trained. A demonstration is imitated, with advantage 1.
-- Filtered: nothing.
with ends as (
    select trajectory_id, list_max([k for t, k in turns if t.kind = 'main']) as last_turn from previous
)
select
    previous.*,
    [case when t.kind = 'main' then demonstration::int end for t in turns]::double[] as credit,
    [coalesce(s, 0) + case when k = last_turn then coalesce(reward, 0) else 0 end for s, k in turn_scores]::double[] as turn_rewards,
    null::varchar as reason
from previous join ends using (trajectory_id)
