-- Draw the rows of the batch. Each setting chooses among the rows that the ones before it have left:
-- the difficulty band, then the balance, the mixture, the size, and last the share of older policies, which therefore holds exactly.
-- Why by group: a draw takes the rows of a group together as far as it can, because they teach by their differences; the advantage
-- of a row that stays is that among its whole group. The lot is a digest of ids and falls the same on every night.
-- A group's pass rate is that of all its verified rollouts, of several rows or one, also filtered ones, without its demonstration; a group without a pass rate stays.
-- Filtered, if a setting asks for it: rows that are not drawn.
with passed as (
    select
        group_id,
        count(distinct coalesce(episode, trajectory_id)) filter (where success)
            / count(distinct coalesce(episode, trajectory_id)) as rate
    from "10_join" where reason is null and success is not null and not demonstration group by group_id
),
kinds as (
    select item_id, any_value(kind order by kind) as kind, any_value(slice order by slice) as slice
    from read_parquet($all_items) where coalesce($sampling_balance::varchar, $sampling_replay::varchar) is not null group by item_id
),
judged as (
    select
        previous.lot, lot(group_id) as group_lot, source,
        case $sampling_balance::varchar when 'environment' then environment when 'kind' then kind when 'slice' then slice end as class, slice,
        list_position($versions::varchar[], policy_version) + case when replayed then 1 else 0 end as age,
        case when rate < $sampling_low or rate > $sampling_high then 'outside the difficulty band' end as cut
    from previous left join passed using (group_id) left join kinds using (item_id)
    where $sampling_low > 0 or $sampling_high < 1 or len($sampling_sources::varchar[]) > 0
        or coalesce($sampling_balance::varchar, $sampling_replay::varchar, $sampling_rows::varchar) is not null
),
-- As many of each class as the smallest has; where the size of the batch is set, classes take turns instead.
balanced as (
    select * replace (coalesce(cut, case
        when $sampling_rows::int is null and row_number() over (partition by class, cut is null order by group_lot, lot)
            > (select min(rows) from (select count(*) as rows from judged where cut is null group by class))
        then 'beyond the balance of its ' || $sampling_balance::varchar
    end) as cut)
    from judged
),
weighed as (
    select source, weight, rows, least(min(rows / weight) over (), $sampling_rows::int / sum(weight) over ()) as scale
    from (select unnest($sampling_sources::varchar[]) as source, unnest($sampling_weights::double[]) as weight)
    join (select source, count(*) as rows from balanced where cut is null group by source) using (source)
    where weight > 0
),
mixed as (
    select balanced.* replace (coalesce(cut, case
        when len($sampling_sources::varchar[]) = 0 then null
        when weight is null then 'source not in the mixture'
        when row_number() over (partition by source, cut is null order by group_lot, lot) > floor(round(scale * weight, 6))
        then 'beyond the share of its source'
    end) as cut)
    from balanced left join weighed using (source)
),
turns as (
    select *, row_number() over (partition by class, cut is null order by group_lot, lot) as turn from mixed
),
sized as (
    select * replace (coalesce(cut, case
        when row_number() over (
            partition by cut is null
            order by case when $sampling_balance::varchar is not null then turn end, group_lot, lot
        ) > $sampling_rows::int
        then 'beyond the size of the batch'
    end) as cut)
    from turns
),
-- Of older policies the newest go first within a slice; a row by none of the known ones is the oldest. What an earlier night rolled out
-- is older than what tonight did by the same policy. The slice with the fewest rows has the next one, tonight's counted as well: what
-- is asked no more is what would be forgotten.
newest as (
    select slice, count(*) as rows from sized where cut is null and age = 1 group by slice
),
placed as (
    select *, age is distinct from 1 as older, row_number() over (
        partition by slice, age is distinct from 1, cut is null order by age nulls last, group_lot, lot
    ) as place
    from sized
),
filled as (
    select
        placed.*,
        coalesce(newest.rows, 0) + min(place) over (partition by placed.slice, older, cut is null, age, group_lot) as height
    from placed left join newest on placed.slice is not distinct from newest.slice
),
replayed as (
    select * replace (coalesce(cut, case
        when $sampling_replay::double < 1 and older
            and row_number() over (partition by older, cut is null order by height, age nulls last, group_lot, lot) > (select floor(round(coalesce(sum(rows), 0) * $sampling_replay / (1 - $sampling_replay), 6)) from newest)
        then 'beyond the share of older policies'
    end) as cut)
    from filled
)
select previous.*, cut as reason
from previous left join replayed using (lot)
