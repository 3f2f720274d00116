-- Preference pairs of this night and of earlier ones, or imported, in the order in which they were named.
-- Why: held-out questions may not be trained on, on any night and also not through imported pairs; and a pair that is named
-- twice would count twice.
-- Filtered: pairs of held-out items, pairs in which a held-out question was asked, and later copies of a pair.
with heldout as (
    select identity, question_digest(user_texts(messages)[-1]) as question
    from read_parquet($items) where split = 'heldout'
),
heldout_items as (
    select item_id from read_parquet($items) where identity in (select identity from heldout)
),
pairs as (
    select file_index, file_row_number, pair_id, item_id, [question_digest(text) for text in user_texts(prompt || chosen || rejected)] as questions
    from read_parquet($pairs)
),
asked as (
    select pair_id from (select pair_id, unnest(questions) as question from pairs)
    where question in (select question from heldout where question is not null)
)
select
    file_index, file_row_number,
    case
        when row_number() over (partition by pair_id order by file_index, file_row_number) > 1 then 'pair given twice'
        when item_id in (from heldout_items) then 'held-out item'
        when pair_id in (from asked) then 'held-out question'
    end as reason
from pairs
order by file_index, file_row_number
