-- How much better than its group each trajectory is: reward minus the group's mean, divided as the setting says by the group's
-- standard deviation + 1e-4, by that of the whole batch + 1e-4, or by nothing. Population form.
-- Why lists: sums of floats depend on their order, and an aggregate over several threads has none; a list is summed in order.
-- Set aside: nothing.
with grouped as (
    select group_id, list(reward order by rollout_index, trajectory_id) as rewards from previous group by group_id
),
batch as (
    select list(reward order by group_id, rollout_index, trajectory_id) as rewards from previous
)
select
    previous.*,
    (reward - list_avg(grouped.rewards)) / case $advantage
        when 'group' then list_stddev_pop(grouped.rewards) + 1e-4
        when 'batch' then list_stddev_pop(batch.rewards) + 1e-4
        when 'none' then 1
    end as advantage,
    null::varchar as reason
from previous join grouped using (group_id) cross join batch
