-- The sides of the pairs to train on, with their tokens as they were recorded, or of text as it was rendered, and the
-- messages after the prompt: two rows for each pair, the chosen one first; clawpipe.data.curation.steps joins them.
-- Why two rows: a join of payload with payload holds all of it in memory.
-- Of the pairs little but numbers goes into the join, ids come from the payload: a table of all of it does not fit into memory, and
-- what is then spilled is the payload of every trajectory.
-- The order is total: with any less the bytes, hence the digest, would change from run to run.
-- Side turns leave the mask. Of a pair of turns each side is what stood before the turn, and the turn.
with placed as (
    select
        row_number() over (order by group_id, margin desc, chosen_id, rejected_id) - 1 as pair,
        ('0x' || sha256(to_json([chosen_id, rejected_id])::varchar)[:16])::ubigint as bits, strategy, margin, prompt_turn, weight,
        unnest([
            {rejected: false, file_index: chosen_file, file_row_number: chosen_row, side_turn: chosen_turn},
            {rejected: true, file_index: rejected_file, file_row_number: rejected_row, side_turn: rejected_turn}
        ], max_depth := 2)
    from previous
),
stored as (
    from trajectories_layout union all by name
    select *, file_index, file_row_number from read_parquet($trajectories, union_by_name = $mixed_trajectories)
),
given as (
    select * replace (
        case when tokens = 'none' then 'rendered' else tokens end as tokens,
        case when tokens = 'none' then rendered_ids else token_ids end as token_ids,
        case when tokens = 'none' then rendered_mask else loss_mask end as loss_mask,
        case when tokens = 'none' then rendered_turns(rendered_mask) else turns end as turns,
        case when tokens = 'none' then rendered_turns(rendered_mask)[1].start else prompt_tokens end as prompt_tokens,
        case when tokens = 'none' then kinds end as kinds
    )
    from placed join (
        select
            file_index, file_row_number, trajectory_id, item_id, group_id, policy_version, temperature, renderer_digest,
            messages, tokens, token_ids, loss_mask, turns, prompt_tokens, kinds, rendered_ids, rendered_mask
        from stored
    ) as stored using (file_index, file_row_number)
),
recorded as (
    select
        * replace (case when prompt_turn is null then prompt_tokens else turns[prompt_turn].start end as prompt_tokens),
        turn_places(messages, turns, kinds) as places,
        case when not list_bool_and([t.kind = 'main' for t in turns]) then turn_of(turns, len(token_ids)) end as turn
    from given
),
sides as (
    select * replace (
        case when turn is null then loss_mask else [m and turns[turn[i]].kind = 'main' for m, i in loss_mask] end as loss_mask
    )
    from recorded
)
select
    format('{:016x}', bits) as pair_id, item_id, group_id, strategy, margin,
    trajectory_id || case when rejected and strategy = 'correction' then '#' || (side_turn - 1) else '' end as id,
    policy_version, renderer_digest, prompt_tokens,
    stream_of(token_ids, prompt_tokens, turns[side_turn]) as token_ids,
    mask_of(loss_mask, prompt_tokens, turns[side_turn]) as loss_mask,
    temperature, weight, tokens,
    case when not rejected then messages[:places[coalesce(prompt_turn, 1)] - 1] end as prompt,
    messages[places[coalesce(side_turn, 1)]:coalesce(places[side_turn], len(messages))] as reply,
    null::varchar as session_id, null::varchar as user_id,  -- their trajectories hold session, user and origin
    null::varchar as tools, null::struct(format varchar, file varchar, line bigint) as origin, null::varchar as extra,
    2 * pair + rejected::int as place
from sides
