-- Weigh the rows in the loss: by the slice of their task item, as the settings say or so that all slices have equal shares, and
-- demonstrations by their own factor.
-- Why the mean of the slices' factors is 1, over what the loss is a mean of (trained tokens; rows for kto and for a mean of rows'
-- means; pairs for dpo): weights then move the shares of the slices and not the size of the step. What has no task item counts as one
-- more slice.
-- Why sums of sums: a sum of floats depends on its order, one of whole numbers does not.
-- Filtered: nothing.
with kinds as (
    select item_id, any_value(slice order by slice) as slice from read_parquet($all_items) group by item_id
),
sized as (
    select previous.lot, coalesce(slice, '') as slice, case when $row_means or $by_pairs then 1 else trained end::bigint as size
    from previous left join kinds using (item_id)
),
slices as (
    select
        slice, sum(size)::bigint as size,
        case
            when $balanced then 1 / sum(size)
            else coalesce(list_extract($slice_factors::double[], list_position($slice_names::varchar[], slice)), 1)
        end::double as factor
    from sized group by slice
),
total as (
    select list_sum(list(factor * size order by slice)) / sum(size) as mean from slices
),
factors as (
    select slice, factor / mean as factor from slices cross join total
)
select
    previous.* replace (weight * factor * case when demonstration then $demonstrations_weight else 1 end as weight),
    slice, size,
    null::varchar as reason
from previous join sized using (lot) join factors using (slice)
