-- One narrow row a trajectory: ids, lengths, digests and the verifier's score of the whole trajectory.
-- Why: the steps after this one decide about rows without touching tokens or messages; the last step reads those again, once.
-- Of several verifier scores of a trajectory the first by scorer name counts. A trajectory given twice counts once.
-- Set aside: later copies of a trajectory id, and trajectories that no verifier scored.
with verdict as (
    select trajectory_id, value as reward, success
    from read_parquet($scores)
    where origin = 'verifier' and turn is null
    qualify row_number() over (partition by trajectory_id order by scorer, value, success) = 1
),
-- Materialised so that the window below sorts narrow rows and not the payload.
narrow as materialized (
    select
        file_index, file_row_number, trajectory_id, item_id, group_id, rollout_index, policy_version, split, tokens, temperature,
        len(token_ids) as length,
        coalesce(list_sum([t."end" - t.start for t in turns if t.kind = 'main']), 0)::bigint as trained,
        coalesce(list_bool_and([isfinite(p) for p in logprobs]), true) as finite,
        body_digest(messages) as body,
        [question_digest(text) for text in user_texts(messages)] as questions
    from read_parquet($trajectories)
)
select
    narrow.*, reward, success,
    case
        when row_number() over (partition by trajectory_id order by file_index, file_row_number) > 1 then 'trajectory given twice'
        when reward is null then 'no verifier score'
    end as reason
from narrow left join verdict using (trajectory_id)
