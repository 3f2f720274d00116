-- Limit the share of demonstrations in the batch.
-- Why: they show what the policy cannot find by itself, and are not what it says; too many of them would make it forget its own words.
-- A pair is one if its chosen side is one.
-- Filtered, if a setting limits it: demonstrations beyond that share of what is left, drawn by lot.
with counted as (select count_if(not demonstration or replayed) as others from previous),
placed as (
    select lot, row_number() over (order by lot) as place from previous where demonstration and not replayed
)
select
    previous.*,
    case
        when place > floor(round(others * $demonstrations_share / (1 - $demonstrations_share), 6)) and $demonstrations_share < 1
        then 'beyond the share of demonstrations'
    end as reason
from previous left join placed using (lot) cross join counted
