-- Figures of the batch. Reward and success are those of every scored trajectory, before anything else was set aside.
select
    (select list_avg(list(reward order by trajectory_id)) from "10_join" where reason is null) as reward_mean,
    (select list_avg(list(success::int order by trajectory_id)) from "10_join" where reason is null) as success_rate,
    (select count(distinct group_id) from previous) as groups,
    (select sum(length)::bigint from previous) as tokens,
    (select sum(trained)::bigint from previous) as trained_tokens
