-- Read the samples: the remaining rows with their recorded tokens and log-probs.
-- Rendered text has its rendered tokens, and the recomputed log-probs at temperature 1; imitation needs none. No policy said what a
-- demonstration says, so its policy version is "text".
-- A turn without credit (a side turn, a neutral one) is not trained on: its tokens leave the mask.
-- Turn by turn there are no groups, so each row is its own: a group is never split between optimizer steps, and conversations that begin
-- alike, as with one greeting, may be all that there are.
-- The order is total: with any less the bytes, hence the digest, would change from run to run.
with stored as (
    from trajectories_layout union all by name
    select *, file_index, file_row_number from read_parquet($trajectories, union_by_name = $mixed_trajectories)
),
payload as (
    select
        previous.*,
        renderer_digest,
        case when previous.tokens = 'rendered' then rendered_ids else token_ids end as token_ids,
        case when previous.tokens = 'rendered' then rendered_mask else loss_mask end as loss_mask,
        case when previous.tokens = 'rendered' then coalesce(rendered_logprobs, [0::float for m in rendered_mask]) else logprobs end as logprobs,
        case when previous.tokens = 'rendered' and rendered_logprobs is not null then 1.0 else previous.temperature end as shown_at,
        case when previous.tokens = 'rendered' then rendered_policy end as asked,
        case when previous.tokens = 'rendered' then previous.turns[1].start else prompt_tokens end as prompt_tokens,
        turn_of(previous.turns, length) as turn
    from (
        select *, row_number() over (order by group_id, rollout_index, trajectory_id) - 1 as place from previous
    ) as previous join stored using (file_index, file_row_number)
),
masked as (
    select * replace ([m and credit[turn[i]] is not null for m, i in loss_mask] as loss_mask) from payload
)
select
    trajectory_id, item_id, case when $credit = 'turn' then trajectory_id else group_id end as group_id, case when demonstration then 'text' else coalesce(asked, policy_version, 'text') end as policy_version, renderer_digest, rollout_index,
    token_ids,
    loss_mask,
    [case when loss_mask[i] then p else 0 end for p, i in logprobs] as logprobs,
    [case when m then credit[turn[i]]::float else 0 end for m, i in loss_mask] as advantages,
    prompt_tokens,
    shown_at::double as temperature,
    weight,
    case
        when turn_rewards is not null
        then [case when m and i = turns[turn[i]]."end" then turn_rewards[turn[i]]::float else 0 end for m, i in loss_mask]
    end as rewards,
    [
        {turn: numbers[k], start: t.start, "end": t."end"}
        for t, k in turns if credit[k] is not null and numbers[k] is not null
    ] as turns,
    place
from masked
