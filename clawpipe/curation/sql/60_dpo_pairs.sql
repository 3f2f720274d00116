-- From here on a row is a pair: a success and a failure of one group, with the narrow facts of both.
-- Why the checks: a preference between answers to two prompts, or at two temperatures, means nothing; and where both sides say the
-- same but for case and spacing, the tokens that differ are noise. Rounded, because 0.6 - 0.5 is a little less than 0.1.
-- Set aside: pairs, each under the first reason that applies.
with sides as (
    select
        previous.*, sha256(to_json(token_ids[:prompt_tokens])::varchar) as prompt, said_digest(messages) as said
    from previous join read_parquet($trajectories) as recorded using (file_index, file_row_number)
)
select
    chosen.item_id, chosen.group_id, chosen.policy_version, chosen.temperature,
    chosen.trajectory_id as chosen_id, chosen.file_index as chosen_file, chosen.file_row_number as chosen_row,
    chosen.rollout_index as chosen_index,
    rejected.trajectory_id as rejected_id, rejected.file_index as rejected_file, rejected.file_row_number as rejected_row,
    rejected.rollout_index as rejected_index,
    chosen.reward - rejected.reward as margin,
    chosen.length + rejected.length as length,
    chosen.trained + rejected.trained as trained,
    case
        when chosen.prompt <> rejected.prompt then 'prompts differ'
        when chosen.temperature <> rejected.temperature then 'temperatures differ'
        when chosen.said = rejected.said then 'sides nearly identical'
        when round(chosen.reward - rejected.reward, 9) < $margin then 'margin too small'
    end as reason
from sides as chosen
join sides as rejected on chosen.group_id = rejected.group_id and chosen.success and rejected.success is not true
