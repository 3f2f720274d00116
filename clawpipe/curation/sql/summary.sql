-- Figures of the batch. Reward and success are those of every scored trajectory, before anything else was set aside.
-- A sum of floats depends on its order, so it goes from the least reward to the largest; and over each reward once, because rewards
-- are few as a rule, and all rows in order would not fit into memory.
with rewards as (
    select reward, count(*) as times from "10_join" where reason is null and reward is not null group by reward
)
select
    (select list_sum(list(reward * times order by reward)) / sum(times) from rewards) as reward_mean,
    (select avg(success::int) from "10_join" where reason is null) as success_rate,
    (select count(distinct group_id) from previous) as groups,
    (select sum(length)::bigint from previous) as tokens,
    (select sum(trained)::bigint from previous) as trained_tokens
