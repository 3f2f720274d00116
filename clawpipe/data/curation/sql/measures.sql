-- Measure each trajectory in one pass over tokens and messages: one narrow row in stored order with ids, lengths, digests and turns.
-- This is not a step.
-- Why: it depends on the trajectory and the settings alone, so it is kept beside each dataset and a night measures only new ones.
-- Expensive measures that are not needed are null. Imitation and preferences need no log-probs, so for them text that was rendered counts
-- as its tokens, its turns being those of the mask; for methods with a teacher it does where a policy has scored it. A demonstration is
-- text that is imitated, so it does for every method.
-- An act is a turn as a side of a pair.
-- A row that was shortened says in its note which turns are left, by the numbers that scores have for them, and what users had asked in
-- the part that was cut: a held-out question is looked for there, too.
with stored as (
    from trajectories_layout union all by name
    select *, file_index, file_row_number from read_parquet($trajectories, union_by_name = $mixed_trajectories)
),
given as (
    select * replace (
        case when as_text then 'rendered' else tokens end as tokens,
        case when as_text then rendered_ids else token_ids end as token_ids,
        case when as_text then rendered_turns(rendered_mask) else turns end as turns,
        case when as_text then rendered_turns(rendered_mask)[1].start else prompt_tokens end as prompt_tokens
    ),
    turn_places(messages, turns, case when as_text then kinds end) as places,
    list_concat(user_texts(messages), case when $wants_compressed then asked_before(extra) end) as asked
    from (
        select
            *,
            source = 'rollout' and coalesce(origin.format = 'demonstration', false) as demonstration,
            tokens = 'none' and case
                when $wants_rendered = 'all' or demonstration then rendered_ids is not null
                when $wants_rendered = 'scored' then rendered_logprobs is not null
                else false
            end as as_text
        from stored
    )
)
select
    file_index::int as file, file_row_number::bigint as row,
    trajectory_id, item_id, group_id, rollout_index, policy_version, split, tokens, temperature, demonstration,
    turns, environment, source, session_id, user_id,
    case when source = 'rollout' then json_extract_string(extra, '$.episode') end as episode,  -- of one that left several rows
    coalesce(case when $wants_compressed then kept_turns(extra) end, turn_numbers(messages, places, source, turns)) as numbers,
    coalesce(status, case coalesce(finish_reason, 'stop') when 'stop' then 'completed' else 'truncated' end) as ending,
    len(token_ids)::bigint as length,
    coalesce(list_sum([t."end" - t.start for t in turns if t.kind = 'main']), 0)::bigint as trained,
    len(list_filter(turns, lambda t: t.kind = 'main'))::int as main_turns,
    coalesce(isfinite(list_sum(logprobs)), true) as finite,  -- as doubles: a sum of finite values stays finite
    case
        when $wants_ratios and tokens = 'recorded'
        then fault_of_logprobs(logprobs_kind, source, temperature, logprobs, turns)
    end as logprobs_fault,
    body_digest(messages) as body,
    [question_digest(text) for text in asked] as questions,
    dialogues_in(messages) as dialogues,
    runs_of_five(asked) as runs,
    case
        when $wants_foreign::varchar is not null
        then share_of_letters(letters_of(array_to_string(replies(messages, places), ' ')), $wants_foreign::varchar)
    end::double as in_script,
    case
        when $wants_repetition::int is not null
        then list_max([share_repeated(ngrams(words_of(r), $wants_repetition::int)) for r in replies(messages, places)])
    end::double as repetition,
    case
        when $wants_tool_errors
        then coalesce(tool_errors, len(list_filter(calls(messages), lambda c: c.malformed)))
            / greatest(coalesce(tool_calls, len(calls(messages))), 1)
    end::double as tool_error_rate,
    len($canaries::varchar[]) > 0
        and (list_contains($canaries::varchar[], item_id) or says_one_of(messages, $canaries::varchar[])) as canary,
    case when $wants_corrections then answered_by_user(messages, places) end as answered,
    case when $by_pairs then tokens_digest(token_ids[:prompt_tokens]) end as prompt,
    case when $by_pairs then reply_digest(messages) end as reply_digest,
    case
        when $wants_acts
        then [
            {
                reply_digest: reply_digest([messages[places[k]]]),
                act: tokens_digest(token_ids[t.start + 1:t."end"]),
                prefix: tokens_digest(token_ids[:t.start])
            }
            for t, k in turns
        ]
    end as acts
from given
