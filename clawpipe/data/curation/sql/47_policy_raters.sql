-- Level the scores of turns by user: what a user says more often than all users together counts for less, in that proportion.
-- Why: somebody who praises whatever comes says little by it, and where most answers are wrong, most of that praise is wrong as well.
-- A user's share of praise begins at everybody's, as if from four more scores, so that one word from a stranger counts nearly whole.
-- Nobody's word counts for more than it says. Rows without a user keep their scores.
-- Filtered: nothing.
with said as (
    select user_id, count(*) filter (where score > 0) as praised, count(*) as scored
    from (select user_id, unnest(turn_scores) as score from previous)
    where score <> 0 and user_id is not null group by user_id
),
everybody as (
    select sum(praised) / sum(scored) as praise from said
),
levelled as (
    select user_id, praise, (praised + 4 * praise) / (scored + 4) as own
    from said cross join everybody
),
factors as (
    select user_id, least(1, praise / own) as of_praise, least(1, (1 - praise) / (1 - own)) as of_blame
    from levelled where praise > 0 and praise < 1
)
select
    previous.* replace (
        [
            s * case when s > 0 then coalesce(of_praise, 1) when s < 0 then coalesce(of_blame, 1) else 1 end
            for s in turn_scores
        ]::double[] as turn_scores
    ),
    null::varchar as reason
from previous left join factors using (user_id)
