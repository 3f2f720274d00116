-- Filter rows with held-out questions.
-- Why: held-out success measures learning only as long as held-out items stay unseen, over many nights and through captured chats
-- too. An item is known by its identity; its question is its last user message, looked for in every user message of a trajectory.
-- Filtered: rows of held-out items, and rows in which a held-out question was asked.
with heldout as (
    select identity, question_digest(user_texts(messages)[-1]) as question
    from read_parquet($items) where split = 'heldout'
),
heldout_items as (
    select item_id from read_parquet($items) where identity in (select identity from heldout)
),
asked as (
    select trajectory_id from (select trajectory_id, unnest(questions) as question from previous)
    where question in (select question from heldout where question is not null)
)
select
    * exclude (questions),
    case
        when split = 'heldout' or item_id in (from heldout_items) then 'held-out item'
        when trajectory_id in (from asked) then 'held-out question'
    end as reason
from previous
