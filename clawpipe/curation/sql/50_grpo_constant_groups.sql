-- Groups that say nothing about better and worse.
-- Why: an advantage is a difference within a group; a group of one and a group of equal rewards have none, and counting their
-- tokens in the loss's normaliser would only shrink the others' step.
-- Set aside: every row of such a group, unless the setting keeps them (their advantages are then 0).
with spread as (
    select group_id, count(*) as rollouts, max(reward) > min(reward) as varied from previous group by group_id
)
select
    previous.*,
    case
        when not $drop_constant_groups then null
        when rollouts = 1 then 'group of one'
        when not varied then 'constant group'
    end as reason
from previous join spread using (group_id)
