-- Every success is imitated with the same weight.
-- Set aside: nothing.
select *, 1.0::double as advantage, null::varchar as reason
from previous
