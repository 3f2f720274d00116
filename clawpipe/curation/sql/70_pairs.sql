-- The pairs to train on, with both sides' tokens as they were recorded and what was said after the prompt.
-- The order is total: with any less the bytes, hence the digest, would change from run to run.
-- Side turns leave the mask. Of a pair of turns each side is what stood before the turn, and the turn.
with wanted as (
    select chosen_file as file_index, chosen_row as file_row_number from previous
    union select rejected_file, rejected_row from previous
),
recorded as (
    select *, turn_of(turns, len(token_ids)) as turn, turn_places(messages, turns) as places
    from wanted join read_parquet($trajectories, union_by_name = true) as recorded using (file_index, file_row_number)
),
sides as (
    select * replace ([m and turns[turn[i]].kind = 'main' for m, i in loss_mask] as loss_mask) from recorded
),
pairs as (
    select
        previous.*, chosen, rejected, coalesce(prompt_turn, 1) as first_turn,
        case when prompt_turn is null then chosen.prompt_tokens else chosen.turns[prompt_turn].start end as prompt_tokens
    from previous
    join sides as chosen on chosen.file_index = chosen_file and chosen.file_row_number = chosen_row
    join sides as rejected on rejected.file_index = rejected_file and rejected.file_row_number = rejected_row
)
select
    sha256(to_json([chosen_id, rejected_id])::varchar)[:16] as pair_id,
    item_id, group_id, strategy, margin, chosen_id, rejected_id, policy_version,
    chosen.renderer_digest, prompt_tokens,
    stream_of(chosen.token_ids, prompt_tokens, chosen.turns[chosen_turn]) as chosen_token_ids,
    mask_of(chosen.loss_mask, prompt_tokens, chosen.turns[chosen_turn]) as chosen_loss_mask,
    stream_of(rejected.token_ids, prompt_tokens, rejected.turns[rejected_turn]) as rejected_token_ids,
    mask_of(rejected.loss_mask, prompt_tokens, rejected.turns[rejected_turn]) as rejected_loss_mask,
    temperature, 1.0::double as weight, 'recorded' as tokens,
    chosen.messages[:chosen.places[first_turn] - 1] as prompt,
    chosen.messages[chosen.places[coalesce(chosen_turn, 1)]:coalesce(chosen.places[chosen_turn], len(chosen.messages))] as chosen,
    rejected.messages[rejected.places[coalesce(rejected_turn, 1)]:coalesce(rejected.places[rejected_turn], len(rejected.messages))]
        as rejected
from pairs
order by group_id, margin desc, chosen_id, rejected_id
