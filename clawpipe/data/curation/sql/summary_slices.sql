-- Compute what each slice of the task items has in the batch: its rows, and its part of the weighted loss, from 0 to 1.
-- A sum of floats depends on its order, so it goes from row to row by lot.
with sums as (
    select slice, count(*)::bigint as rows, list_sum(list(weight * size order by lot)) as part from previous group by slice
)
select slice, rows, part / (select list_sum(list(part order by slice)) from sums) as share from sums order by slice
