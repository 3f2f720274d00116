-- Only what worked is imitated.
-- Set aside: rows whose verifier did not report success.
select *, case when success is not true then 'no success' end as reason
from previous
