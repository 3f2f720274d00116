-- Measure preference pairs, those of this night first, then those of earlier nights or imported, in the order in which they were
-- named: one narrow row each, with the columns by which the steps filter trajectories. This is not a step.
-- Why: what may not be trained on in a trajectory may not be in a pair. To the steps a pair is a trajectory with its id. Pairs of this
-- night come from trajectories that have passed the quotas.
with stored as (
    from preference_pairs_layout union all by name
    select *, file_index, file_row_number from read_parquet($pairs, union_by_name = true)
)
select
    file_index::bigint as file_index, file_row_number::bigint as file_row_number, file_index < $made_files as made,
    pair_id as trajectory_id, lot(pair_id) as lot, item_id, policy_version, session_id, user_id, 'train' as split,
    case when origin.format = 'capture' then 'captured' when strategy = 'imported' then 'imported' else 'rollout' end as source,
    [question_digest(text) for text in user_texts(prompt || chosen || rejected)] as questions,
    dialogues_in(prompt || chosen) || dialogues_in(prompt || rejected) as dialogues,
    runs_of_five(user_texts(prompt || chosen || rejected)) as runs,
    len($canaries::varchar[]) > 0 and (
        list_contains($canaries::varchar[], item_id) or says_one_of(prompt || chosen || rejected, $canaries::varchar[])
    ) as canary,
    body_digest(prompt) as asked, reply_digest(chosen) as chosen_says, reply_digest(rejected) as rejected_says
from stored
