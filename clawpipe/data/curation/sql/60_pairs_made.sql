-- Make pairs of rows: a success and a failure of one group, with the narrow columns of both.
-- Three kinds. Whole trajectories of one prompt. By strategy same-prefix single turns after the same tokens, where groups branch:
-- the value of a turn is the mean reward of the rollouts that took it, the chosen turn is one that led to a success and the rejected
-- one led to a failure. And, by the setting, a reply that a user corrected against the later reply that the user accepted.
-- Why the checks: a preference between answers to two prompts, or at two temperatures, means nothing; where both sides say the
-- same but for case and spacing, the tokens that differ are noise; and where one side is much longer, length is what is learnt.
-- Rounded, because 0.6 - 0.5 is a little less than 0.1. `prompt_turn` is null for whole trajectories; else the pair is of two turns
-- in the place of that one. The id of a corrected reply is its trajectory, "#" and the index of its turn, so that no row is paired with itself.
-- Filtered: pairs, each under the first reason that applies.
with sides as (
    select
        *,
        {
            trajectory_id: trajectory_id, environment: environment, source: source, session_id: session_id, item_id: item_id,
            group_id: group_id, policy_version: policy_version, temperature: temperature, rollout_index: rollout_index,
            file_index: file_index, file_row_number: file_row_number, demonstration: demonstration, replayed: replayed
        } as side
    from previous
),
turned as (
    select
        side, reward, success, corrected,
        [
            {
                turn: k, kind: t.kind, start: t.start, trained: t."end" - t.start, score: turn_scores[k],
                reply_digest: acts[k].reply_digest, act: acts[k].act, prefix: acts[k].prefix
            }
            for t, k in turns
        ] as acts
    from sides where acts is not null
),
whole as (
    select
        $pairs_strategy as strategy, chosen.side as chosen, rejected.side as rejected,
        chosen.trajectory_id as chosen_id, rejected.trajectory_id as rejected_id,
        null::bigint as prompt_turn, null::bigint as chosen_turn, null::bigint as rejected_turn,
        chosen.reward - rejected.reward as margin,
        chosen.prompt as asked, chosen.reply_digest as chosen_says, rejected.reply_digest as rejected_says,
        chosen.length + rejected.length as length, chosen.trained as chosen_trained, rejected.trained as rejected_trained,
        case
            when chosen.prompt <> rejected.prompt then 'prompts differ'
            when chosen.temperature <> rejected.temperature then 'temperatures differ'
            when chosen.reply_digest = rejected.reply_digest then 'sides nearly identical'
            when $pairs_strategy = 'on-policy' and chosen.policy_version is distinct from ($versions::varchar[])[1]
            then 'policy not the newest'
        end as obstacle
    from sides as chosen
    join sides as rejected on chosen.group_id = rejected.group_id and chosen.success and rejected.success is not true
    where $pairs_strategy <> 'same-prefix' and chosen.reward is not null and rejected.reward is not null
),
taken as (
    select side, reward, success, unnest(acts) as act from turned where reward is not null and $pairs_strategy = 'same-prefix'
),
branches as (
    select
        side.group_id as group_id, side.temperature as temperature, act.prefix as prefix, act.act as act, act.turn as turn,
        list_avg(list(reward order by side.rollout_index, side.trajectory_id)) as value,
        first({side: side, act: act} order by reward desc, side.rollout_index, side.trajectory_id) filter (where success) as won,
        first({side: side, act: act} order by reward, side.rollout_index, side.trajectory_id) filter (where success is not true) as lost
    from taken where act.kind = 'main' group by all
),
forks as (
    select
        'same-prefix' as strategy, chosen.won.side as chosen, rejected.lost.side as rejected, turn as prompt_turn,
        chosen.won.act as chosen_act, rejected.lost.act as rejected_act, chosen.value - rejected.value as margin
    from branches as chosen join branches as rejected using (group_id, temperature, prefix, turn)
    where chosen.act <> rejected.act and differ(chosen.value, rejected.value) and chosen.won is not null and rejected.lost is not null
),
corrections as (
    select
        'correction' as strategy, side as chosen, side as rejected, c.turn as prompt_turn,
        acts[c.accepted] as chosen_act, acts[c.turn] as rejected_act, acts[c.accepted].score - acts[c.turn].score as margin
    from (select side, acts, unnest(corrected) as c from turned)
),
single as (
    select
        strategy, chosen, rejected, chosen.trajectory_id as chosen_id,
        rejected.trajectory_id || case when strategy = 'correction' then '#' || (rejected_act.turn - 1) else '' end as rejected_id,
        prompt_turn, chosen_act.turn as chosen_turn, rejected_act.turn as rejected_turn, margin,
        rejected_act.prefix as asked, chosen_act.reply_digest as chosen_says, rejected_act.reply_digest as rejected_says,
        2 * rejected_act.start + chosen_act.trained + rejected_act.trained as length,
        chosen_act.trained as chosen_trained, rejected_act.trained as rejected_trained,
        case when chosen_act.reply_digest = rejected_act.reply_digest then 'sides nearly identical' end as obstacle
    from (from forks union all by name from corrections)
)
select
    strategy, chosen_id, rejected_id, prompt_turn, chosen_turn, rejected_turn, margin, length, asked, chosen_says, rejected_says,
    lot(chosen_id || ' ' || rejected_id) as lot,
    chosen.environment, chosen.source, chosen.session_id,
    chosen.item_id, chosen.group_id, chosen.policy_version, chosen.temperature, chosen.demonstration, chosen.replayed, 1.0::double as weight,
    null::varchar as episode,  -- a pair is no part of one
    chosen.file_index as chosen_file, chosen.file_row_number as chosen_row, chosen.rollout_index as chosen_index,
    rejected.file_index as rejected_file, rejected.file_row_number as rejected_row, rejected.rollout_index as rejected_index,
    chosen_trained + rejected_trained as trained,
    greatest(chosen_trained, rejected_trained) / least(chosen_trained, rejected_trained) as length_ratio,
    case
        when obstacle is not null then obstacle
        when round(margin, 9) < $pairs_margin then 'margin too small'
        when round(length_ratio, 9) > $pairs_length_ratio::double then 'lengths too different'
    end as reason
from (from whole union all by name from single)
