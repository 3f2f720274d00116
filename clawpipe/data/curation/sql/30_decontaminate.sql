-- Filter rows with held-out questions.
-- Why: held-out success measures learning only as long as held-out items stay unseen, over many nights and through captured chats
-- and stored pairs too. An item is known by its identity; its question is its last user message, looked for in every user message of
-- a row: as the whole message but for marks at its ends, and with other words before or after it.
-- Many a chat opens with a greeting, which is no question. So where that of a held-out conversation says less than five words do, the
-- conversation is looked for as a whole; and as the beginning of one that went on, where its users' words together say so much.
-- Filtered: rows of held-out items, rows in which a held-out question was asked, and copies of held-out conversations.
with heldout as (
    select identity, environment = 'conversations' as is_chat, user_texts(messages)[-1] as question, truth
    from read_parquet($items) where split = 'heldout'
),
heldout_items as (
    select item_id from read_parquet($items) where identity in (select identity from heldout)
),
told as (
    select *, content_of(question) >= 5 as tells from heldout
),
wholes as (
    select question_digest(question) as question from told where tells or not is_chat
),
greeted as (
    select truth, try_cast(json_extract(truth, '$.said') as struct(role varchar, text varchar)[]) as said
    from told where is_chat and not tells
),
dialogues as (
    select question_digest(coalesce(array_to_string([m.text for m in said], chr(10)), json_extract_string(truth, '$.dialogue'))) as dialogue
    from greeted  -- older items have no more than one text
    union all
    select beginnings([question_digest(m.text) for m in said if bare(m.text) <> ''])[-1] from greeted
    where content_of(array_to_string([m.text for m in said if m.role = 'user'], ' ')) >= 5
),
needed as (
    select place, len(runs) as count, unnest(runs) as run
    from (select row_number() over () as place, runs_of_five([question]) as runs from told where tells)
),
asked as (
    select trajectory_id from (select trajectory_id, unnest(questions) as question from previous)
    where question in (select question from wholes where question is not null)
    union
    select trajectory_id from (select trajectory_id, unnest(runs) as run from runs) join needed using (run)
    group by trajectory_id, place, count having count(distinct run) = count
),
copied as (
    select trajectory_id from (select trajectory_id, unnest(dialogues) as dialogue from previous)
    where dialogue in (select dialogue from dialogues where dialogue is not null)
)
select
    * exclude (questions, dialogues),
    case
        when split = 'heldout' or item_id in (from heldout_items) then 'held-out item'
        when trajectory_id in (from asked) then 'held-out question'
        when trajectory_id in (from copied) then 'held-out conversation'
    end as reason
from previous
