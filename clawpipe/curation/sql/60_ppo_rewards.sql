-- What arrives at the end of each turn: the turn's own score, and with the last main turn the trajectory's reward.
-- Why: advantages are the critic's to estimate, so that groups of equal rewards and groups of one teach as well.
-- `income` holds one reward a turn; `credit` only says which turns are trained.
-- Set aside: nothing.
with ends as (
    select trajectory_id, list_max([k for t, k in turns if t.kind = 'main']) as last_turn from previous
)
select
    previous.*,
    [case when t.kind = 'main' then 0 end for t in turns]::double[] as credit,
    [coalesce(s, 0) + case when k = last_turn then coalesce(reward, 0) else 0 end for s, k in turn_scores]::double[] as income,
    null::varchar as reason
from previous join ends using (trajectory_id)
