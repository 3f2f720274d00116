-- Keep successes for imitation or, by the setting, the best rollout of each group, or all rows that did not fail.
-- Why: a group of equal rewards has no best one. Ties go to the first by rollout index.
-- What a person wrote in place of an answer is imitated in any case.
-- Where a judge speaks of single turns, each turn that was praised is a success, whatever the mean of the turns is.
-- The best rollout may have left several rows.
-- Filtered: rows that are no success and have no turn that was praised; or rows of groups that do not vary, and all but the best of the others.
with ranked as (
    select
        *,
        differ(max(reward) over (partition by group_id), min(reward) over (partition by group_id)) as varied,
        dense_rank() over (partition by group_id order by reward desc, rollout_index, coalesce(episode, trajectory_id)) as place
    from previous
)
select
    * exclude (varied, place),
    case
        when trajectory_id in (select row_id from reviews where verdict = 'written') then null
        when $imitate <> 'chosen' and list_contains(turn_signs, 1) then null
        when $imitate = 'success' then case when success is not true then 'no success' end
        when $imitate = 'any' then case when success is false then 'no success' end
        when max(place) over (partition by group_id) = 1 then 'group of one'
        when not varied then 'zero-variance group'
        when place > 1 then 'not the best of its group'
    end as reason
from ranked
