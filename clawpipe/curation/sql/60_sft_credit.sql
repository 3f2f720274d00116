-- Give each main turn the advantage 1: imitation weighs all rows equally.
-- Filtered: nothing.
select
    *,
    [case when t.kind = 'main' then 1 end for t in turns]::double[] as credit,
    null::double[] as turn_rewards,
    null::varchar as reason
from previous
