-- Choose a few pairs of each group, so that no group outweighs the others: the one of largest margin, or the setting's number. By strategy
-- length-balanced each chosen side first keeps the rejected one nearest to its length alone. Corrections have a number of their own.
-- Why the ties: rewards are often 0 and 1, and then every margin is the same. Going along the diagonal uses each side once before
-- any is used twice.
-- Filtered: pairs beyond that.
with near as (
    select *, case
        when strategy = 'length-balanced'
            and row_number() over (partition by strategy, chosen_id order by length_ratio, margin desc, rejected_id) > 1
        then 'not the nearest in length'
    end as cut
    from previous
),
placed as (
    select
        *,
        dense_rank() over (partition by group_id, strategy, cut is null order by chosen_index, chosen_id) as chosen_place,
        dense_rank() over (partition by group_id, strategy, cut is null order by rejected_index, rejected_id) as rejected_place
    from near
),
sized as (
    select
        *,
        greatest(
            max(chosen_place) over (partition by group_id, strategy, cut is null),
            max(rejected_place) over (partition by group_id, strategy, cut is null)
        ) as longest
    from placed
),
ranked as (
    select
        *,
        row_number() over (
            partition by group_id, strategy, cut is null
            order by margin desc, (rejected_place - chosen_place + longest) % longest, chosen_place, rejected_place
        ) as rank
    from sized
)
select
    * exclude (length_ratio, cut, chosen_place, rejected_place, longest, rank),
    case
        when cut is not null then cut
        when strategy = 'best-worst' then case when rank > 1 then 'not best against worst' end
        when rank > $pairs_per_group then 'beyond the cap of its group'
    end as reason
from ranked
