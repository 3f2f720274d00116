-- Everything that is imitated is imitated with the same weight: each main turn has the advantage 1.
-- Set aside: nothing.
select
    *,
    [case when t.kind = 'main' then 1 end for t in turns]::double[] as credit,
    null::double[] as income,
    null::varchar as reason
from previous
