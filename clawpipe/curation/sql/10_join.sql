-- One narrow row a trajectory: ids, lengths, digests, turns, what was scored about it, and whether it has hindsight.
-- Why: the steps after this one decide about rows without touching tokens or messages; the last step reads those again, once.
-- Of several verifier scores of a trajectory the first by scorer name counts. Of several scores of a turn the one nearest to a
-- person counts: a user's, then that of a custom scorer, then a verifier's, then a judge's; among equals the first by scorer name.
-- A trajectory given twice counts once. Hindsight is that of the whole trajectory, in the form that the teacher is shown.
-- Set aside: later copies of a trajectory id.
with known as (
    from scores_layout union all by name from read_parquet($scores, union_by_name = true)  -- older files lack columns: null
),
verdict as (
    select trajectory_id, value as reward, success
    from known
    where origin = 'verifier' and turn is null
    qualify row_number() over (partition by trajectory_id order by scorer, value, success) = 1
),
turn_verdict as (
    select trajectory_id, turn, value
    from known
    where turn is not null
    qualify row_number() over (
        partition by trajectory_id, turn
        order by list_position(['user', 'custom', 'verifier', 'judge'], origin), scorer, value
    ) = 1
),
by_turn as (
    select trajectory_id, map_from_entries(list({k: turn, v: value} order by turn)) as scored
    from turn_verdict group by trajectory_id
),
hindsight as (
    select distinct trajectory_id from known
    where turn is null and case $hint
        when 'text' then len(list_filter(hints, lambda hint: regexp_matches(hint, '[^\s\p{Z}]'))) > 0
        when 'demonstration' then len(demonstration) > 0
    end
),
-- Materialised so that the window below sorts narrow rows and not the payload.
narrow as materialized (
    select
        file_index, file_row_number, trajectory_id, item_id, group_id, rollout_index, policy_version, split, tokens, temperature,
        turns,
        len(token_ids) as length,
        coalesce(list_sum([t."end" - t.start for t in turns if t.kind = 'main']), 0)::bigint as trained,
        coalesce(list_bool_and([isfinite(p) for p in logprobs]), true) as finite,
        body_digest(messages) as body,
        [question_digest(text) for text in user_texts(messages)] as questions
    from read_parquet($trajectories)
)
select
    narrow.*, reward, success,
    [case when t.kind = 'main' then scored[k - 1] end for t, k in turns]::double[] as turn_scores,
    trajectory_id in (from hindsight) as hinted,
    case
        when row_number() over (partition by trajectory_id order by file_index, file_row_number) > 1 then 'trajectory given twice'
    end as reason
from narrow left join verdict using (trajectory_id) left join by_turn using (trajectory_id)
