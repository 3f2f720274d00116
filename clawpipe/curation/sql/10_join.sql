-- One narrow row a trajectory: ids, lengths, digests, turns, what was scored about it, and whether it has hindsight.
-- What later steps want to know about its messages is measured here as well, and only if a setting asks for it.
-- Why: the steps after this one decide about rows without touching tokens or messages; the last step reads those again, once.
-- Of several verifier scores of a trajectory the first by scorer name counts. Of several scores of a turn the one nearest to a
-- person counts: a user's, then that of a custom scorer, then a verifier's, then a judge's; among equals the first by scorer name.
-- What was imported is judged by whatever score came with it: a verifier's, then a user's, then a custom scorer's, then a judge's.
-- Imitation needs no log-probs, so for sft text that was rendered counts as its tokens, its turns being those of the mask.
-- A trajectory given twice counts once. Hindsight is that of the whole trajectory, in the form that the teacher is shown.
-- Set aside: later copies of a trajectory id.
with known as (
    from scores_layout union all by name from read_parquet($scores, union_by_name = true)  -- older files lack columns: null
),
verdict as (
    select trajectory_id, value as reward, success, origin
    from known
    where turn is null
    qualify row_number() over (
        partition by trajectory_id
        order by list_position(['verifier', 'user', 'custom', 'judge'], origin), scorer, value, success
    ) = 1
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
stored as (
    from trajectories_layout union all by name
    select *, file_index, file_row_number from read_parquet($trajectories, union_by_name = true)
),
given as (
    select * replace (
        case when as_text then 'rendered' else tokens end as tokens,
        case when as_text then rendered_ids else token_ids end as token_ids,
        case when as_text then rendered_turns(rendered_mask) else turns end as turns
    )
    from (select *, $method = 'sft' and tokens = 'none' and rendered_ids is not null as as_text from stored)
),
-- Materialised so that what follows goes over narrow rows and not the payload; the window sorts keys alone.
narrow as materialized (
    select
        file_index, file_row_number, trajectory_id, item_id, group_id, rollout_index, policy_version, split, tokens, temperature,
        turns, environment, source, session_id, user_id,
        lot(trajectory_id) as lot,
        coalesce(status, case finish_reason when 'stop' then 'completed' else 'truncated' end) as ending,
        len(token_ids) as length,
        coalesce(list_sum([t."end" - t.start for t in turns if t.kind = 'main']), 0)::bigint as trained,
        coalesce(isfinite(list_sum(logprobs)), true) as finite,  -- as doubles, so that only what is not finite can make it so
        body_digest(messages) as body,
        [question_digest(text) for text in user_texts(messages)] as questions,
        len(list_filter(messages, lambda m: m.role = 'assistant')) as replies,
        case
            when $filters_foreign::varchar is not null
            then share_of_letters(letters_of(array_to_string(replies(messages, turns), ' ')), $filters_foreign::varchar)
        end as in_script,
        case
            when $filters_max_repetition::double is not null
            then list_max([share_repeated(ngrams(words_of(r), $filters_repetition_words)) for r in replies(messages, turns)])
        end as repetition,
        case
            when $filters_max_tool_error_rate::double is not null
            then coalesce(tool_errors, len(list_filter(calls(messages), lambda c: c.malformed)))
                / greatest(coalesce(tool_calls, len(calls(messages))), 1)
        end as tool_error_rate,
        len($canaries::varchar[]) > 0
            and (list_contains($canaries::varchar[], item_id) or says_one_of(messages, $canaries::varchar[])) as canary,
        case when $pairs_corrections then answered_by_user(messages, turns) end as answered
    from given
),
later as (
    select (file_index, file_row_number) from narrow
    qualify row_number() over (partition by trajectory_id order by file_index, file_row_number) > 1
),
joined as (
    select
        narrow.*,
        case when verdict.origin = 'verifier' or source = 'imported' then reward end as reward,
        case when verdict.origin = 'verifier' or source = 'imported' then success end as success,
        [case when t.kind = 'main' then scored[k - 1] end for t, k in turns]::double[] as turn_scores,
        trajectory_id in (from hindsight) as hinted
    from narrow left join verdict using (trajectory_id) left join by_turn using (trajectory_id)
)
select
    * exclude (answered),
    [k for k in range(1, len(turns)) if answered[k] and turn_scores[k] < 0 and turn_scores[k + 1] > 0] as corrected,
    case when (file_index, file_row_number) in (from later) then 'trajectory given twice' end as reason
from joined
