-- Which row_ranges of rows a step may compare: those that have a trajectory, a group, or what the method takes for copies in common.
-- A row_range is known by its number: `row_ranges` holds that of each file of measures, and of such a file a row_range has the rows from
-- `first_rows` up to `end_rows`. Two numbers a row: every row_range with such rows, beside the first of them.
with keys as not materialized (
    select
        $row_ranges[file_index::int + 1] as row_range,
        unnest([
            hash('trajectory', trajectory_id),
            hash('group', group_id),
            case $copies
                when 'draw' then hash('draw', item_id, policy_version, rollout_index, body)
                when 'conversation' then hash('conversation', body)
            end
        ]) as key
    from read_parquet($measures)
    where file_row_number >= $first_rows[file_index::int + 1] and file_row_number < $end_rows[file_index::int + 1]
),
shared as (
    select key, min(row_range) as first from keys where key is not null group by key having min(row_range) < max(row_range)
)
select distinct first, row_range from keys join shared using (key) where row_range > first order by all
