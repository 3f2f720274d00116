-- Filter canaries.
-- Why: planted items and strings show what a model was trained on, so they must not be trained on.
-- Filtered: rows of the named items, and rows with one of the strings in any message.
select * exclude (canary), case when canary then 'canary' end as reason
from previous
