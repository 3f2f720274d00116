-- A group has a few pairs, so that none outweighs the others: the one of largest margin, or as many as the setting says.
-- Why the ties: rewards are often 0 and 1, and then every margin is the same. Going along the diagonal uses each side once before
-- any is used twice.
-- Set aside: pairs beyond that.
with placed as (
    select
        *,
        dense_rank() over (partition by group_id order by chosen_index, chosen_id) as chosen_place,
        dense_rank() over (partition by group_id order by rejected_index, rejected_id) as rejected_place
    from previous
),
sized as (
    select *, greatest(max(chosen_place) over (partition by group_id), max(rejected_place) over (partition by group_id)) as longest
    from placed
),
ranked as (
    select
        *,
        row_number() over (
            partition by group_id
            order by margin desc, (rejected_place - chosen_place + longest) % longest, chosen_place, rejected_place
        ) as rank
    from sized
)
select
    * exclude (chosen_place, rejected_place, longest, rank),
    case
        when $strategy = 'best-worst' then case when rank > 1 then 'not best against worst' end
        when rank > $per_group then 'beyond the cap of its group'
    end as reason
from ranked
