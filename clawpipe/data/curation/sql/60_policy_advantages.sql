-- Compute advantages A_i = (R_i - b) / s of the rewards R of a group's rollouts. baseline: mean (b is the group's mean) or leave-one-out
-- (the mean of the others). advantage: group (s is the group's standard deviation + 1e-4), batch (that of the whole batch + 1e-4) or none
-- (1). Standard deviations are in population form. mean and group: GRPO (arXiv 2402.03300); mean and none: Dr. GRPO (arXiv 2503.20783);
-- leave-one-out and none: RLOO (arXiv 2402.14740). parts: A_i is the sum over the parts p of the reward of w_p (R_ip - b_p) / s_p, with b_p
-- and s_p of that part in the group, as GDPO (arXiv 2601.05242) normalises rewards apart, but without its division by the batch. A part that
-- is equal in all rollouts adds nothing.
-- credit: turn has no groups: a turn's score, times negative_weight if it is negative, is its advantage, less the running mean of the
-- scores before it if turn_baseline is set.
-- credit: step compares a turn's score with the scores of the group's attempts at the same step: less their mean, divided by their
-- population standard deviation + 1e-4. A step of a single attempt, or with equal scores, gives no advantage.
-- `credit` holds one advantage per turn; null takes the turn out of the mask: side turns, and turns to which no term gives an advantage.
-- A demonstration's advantage is 1: it is imitated. Of an episode that left several rows one row counts in the group, and all have
-- its advantage.
-- Why lists: sums of floats depend on their order, and an aggregate over several threads has none; a list is summed in order.
-- Filtered: step by step, rows without a step that has an advantage.
with grouped as (
    select group_id, list(reward order by rollout_index, trajectory_id) as rewards
    from previous where rewarded and stands group by group_id
),
batch as (
    select list(reward order by group_id, rollout_index, trajectory_id) as rewards from previous where rewarded and stands
),
part_rows as (
    select trajectory_id, group_id, rollout_index, stands, unnest(map_entries(parts)) as part
    from previous where rewarded and varied and $advantage = 'parts'
),
part_groups as (
    select group_id, part.key as name, list(part.value order by rollout_index, trajectory_id) as rewards
    from part_rows where stands group by all
),
part_advantages as (
    select
        trajectory_id, name,
        coalesce(list_extract($part_factors::double[], list_position($part_names::varchar[], name)), 1) * (
            part.value - case
                when $baseline = 'mean' then list_avg(rewards) else (list_sum(rewards) - part.value) / (len(rewards) - 1)
            end
        ) / (list_stddev_pop(rewards) + 1e-4) as advantage
    from part_rows join part_groups on part_rows.group_id = part_groups.group_id and part.key = name
    where differ(list_max(rewards), list_min(rewards))
),
compared as (
    select trajectory_id, list_sum(list(advantage order by name)) as advantage from part_advantages group by trajectory_id
    union all
    select
        trajectory_id,
        (
            reward - case
                when $baseline = 'mean' then list_avg(grouped.rewards)
                else (list_sum(grouped.rewards) - reward) / (len(grouped.rewards) - 1)
            end
        ) / case $advantage
            when 'group' then list_stddev_pop(grouped.rewards) + 1e-4
            when 'batch' then list_stddev_pop(batch.rewards) + 1e-4
            when 'none' then 1
        end as advantage
    from previous join grouped using (group_id) cross join batch
    where rewarded and varied and $advantage <> 'parts'
),
judged as (
    select * replace (case when score < 0 then score * $negative_weight else score end as score) from (
        select trajectory_id, file_index, file_row_number, unnest(turn_scores) as score, generate_subscripts(turn_scores, 1) as turn
        from previous where rewarded
    )
    where score <> 0
),
centred as (
    select unnest(list(trajectory_id order by file_index, file_row_number, turn)) as trajectory_id,
        unnest(list(turn order by file_index, file_row_number, turn)) as turn,
        unnest(list(score order by file_index, file_row_number, turn)) as score,
        unnest(running_mean(list(score order by file_index, file_row_number, turn), $turn_baseline::double)) as baseline
    from judged
),
by_turn as (
    select trajectory_id, map_from_entries(list({k: turn, v: score - coalesce(baseline, 0)} order by turn)) as advantages
    from centred group by trajectory_id
),
taken as (
    select * from (
        select
            trajectory_id, group_id, rollout_index,
            unnest(turn_scores) as score, generate_subscripts(turn_scores, 1) as turn
        from previous where rewarded and $credit = 'step'
    )
    where score is not null
),
steps as (
    select group_id, turn, list(score order by rollout_index, trajectory_id) as scores from taken group by all
),
by_step as (
    select
        trajectory_id,
        map_from_entries(
            list({k: turn, v: (score - list_avg(scores)) / (list_stddev_pop(scores) + 1e-4)} order by turn)
        ) as advantages
    from taken join steps using (group_id, turn) where differ(list_max(scores), list_min(scores)) group by trajectory_id
),
credited as (
    select
        previous.* exclude (rewarded, taught, varied, hinted, stands),
        [
            case
                when t.kind <> 'main' then null
                when demonstration then 1
                when $credit = 'step' then coalesce(by_step.advantages[k], case when taught and hinted[k] then 0 end)
                when $credit = 'turn' then coalesce(by_turn.advantages[k], case when taught and hinted[k] then 0 end)
                else coalesce(compared.advantage, case when rewarded or (taught and hinted[k]) then 0 end)
            end
            for t, k in turns
        ]::double[] as credit
    from previous left join compared using (trajectory_id) left join by_turn using (trajectory_id)
        left join by_step using (trajectory_id)
)
select
    * replace (list_sum([t."end" - t.start for t, k in turns if credit[k] is not null])::bigint as trained),
    null::double[] as turn_rewards,
    case
        when $credit = 'step' and len(list_filter(credit, lambda c: c is not null)) = 0 then 'steps do not differ'
    end as reason
from credited
