-- What must never be learnt.
-- Why: a planted item or string is how one finds out what a model was trained on, so that it must not be trained on.
-- Set aside: rows of the items that are named, and rows that say one of the strings in whatever message.
select * exclude (canary), case when canary then 'canary' end as reason
from previous
