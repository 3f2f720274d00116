-- Figures of the batch, as sums. Reward and success are those of every scored trajectory, before other filters; without
-- demonstrations and what is replayed, which say nothing of what the policy can do tonight.
-- A sum of floats depends on its order, so it goes from the least reward to the largest; and over each reward once, because rewards
-- are few as a rule, and all rows in order would not fit into memory.
with sampled as (from "10_join" where reason is null and not demonstration and not replayed),
rewards as (
    select outcome as reward, count(*) as times from sampled where outcome is not null group by outcome
)
select
    (select list_sum(list(reward * times order by reward)) from rewards) as reward_sum,
    (select sum(times)::bigint from rewards) as reward_count,
    (select count_if(success) from sampled) as success_sum,
    (select count(success) from sampled) as success_count,
    (select count(distinct group_id) from previous) as groups,
    (select sum(length)::bigint from previous) as tokens,
    (select sum(trained)::bigint from previous) as trained_tokens,
    (select nullif(count_if(demonstration and not replayed), 0) from previous) as demonstrations,
    (
        select nullif(count_if(replayed or policy_version is distinct from ($versions::varchar[])[1]), 0) from previous
        where len($versions::varchar[]) > 0
    ) as older_policies
