-- The pairs to train on, with both sides' tokens as they were recorded and what was said after the prompt.
-- The order is total: with any less the bytes, hence the digest, would change from run to run.
-- Side turns leave the mask.
with wanted as (
    select chosen_file as file_index, chosen_row as file_row_number from previous
    union select rejected_file, rejected_row from previous
),
recorded as (
    select *, turn_of(turns, len(token_ids)) as turn, prompt_length(messages, turns) as prompt_length
    from wanted join read_parquet($trajectories) as recorded using (file_index, file_row_number)
),
sides as (
    select * replace ([m and turns[turn[i]].kind = 'main' for m, i in loss_mask] as loss_mask) from recorded
)
select
    sha256(to_json([chosen_id, rejected_id])::varchar)[:16] as pair_id,
    previous.item_id, previous.group_id, $strategy as strategy, margin, chosen_id, rejected_id, previous.policy_version,
    chosen.renderer_digest, chosen.prompt_tokens,
    chosen.token_ids as chosen_token_ids, chosen.loss_mask as chosen_loss_mask,
    rejected.token_ids as rejected_token_ids, rejected.loss_mask as rejected_loss_mask,
    previous.temperature, 1.0::double as weight, 'recorded' as tokens,
    chosen.messages[:chosen.prompt_length] as prompt,
    chosen.messages[chosen.prompt_length + 1:] as chosen,
    rejected.messages[rejected.prompt_length + 1:] as rejected
from previous
join sides as chosen on chosen.file_index = chosen_file and chosen.file_row_number = chosen_row
join sides as rejected on rejected.file_index = rejected_file and rejected.file_row_number = rejected_row
order by previous.group_id, margin desc, chosen_id, rejected_id
