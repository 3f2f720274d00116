-- The rows to train on: what the steps before left, with tokens and log-probs as they were recorded.
-- Side turns are the policy's own words but not trained on: their tokens leave the mask.
-- The order is total: with any less the bytes, hence the digest, would change from run to run.
with payload as (
    select
        previous.*, renderer_digest, token_ids, logprobs, prompt_tokens,
        case
            when trained = len(list_filter(loss_mask, lambda m: m)) then loss_mask
            else [m and coalesce(list_bool_or([t.kind = 'main' and t.start < i and i <= t."end" for t in turns]), false) for m, i in loss_mask]
        end as mask
    from previous join read_parquet($trajectories) as recorded using (file_index, file_row_number)
)
select
    trajectory_id, item_id, group_id, policy_version, renderer_digest, rollout_index,
    token_ids,
    mask as loss_mask,
    [case when mask[i] then p else 0 end for p, i in logprobs] as logprobs,
    [case when m then advantage::float else 0 end for m in mask] as advantages,
    prompt_tokens,
    temperature,
    1.0::double as weight
from payload
order by group_id, rollout_index, trajectory_id
