-- Find connected row ranges: those that share a trajectory, a group, or copies as the method defines them.
-- `$row_ranges` holds the index of the row range of each file of measures, `$first_rows` and `$end_rows` its rows in that file.
-- Each result row holds a row range, and the first row range with the same key.
with keys as not materialized (
    select
        $row_ranges[file_index::int + 1] as row_range,
        unnest([
            hash('trajectory', trajectory_id),
            hash('group', group_id),
            case $copies
                when 'draw' then hash('draw', item_id, policy_version, rollout_index, body)
                when 'conversation' then hash('conversation', body)
                when 'prompt' then hash('prompt', item_id, prompt)
            end
        ]) as key
    from read_parquet($measures)
    where file_row_number >= $first_rows[file_index::int + 1] and file_row_number < $end_rows[file_index::int + 1]
),
shared as (
    select key, min(row_range) as first from keys where key is not null group by key having min(row_range) < max(row_range)
)
select distinct first, row_range from keys join shared using (key) where row_range > first order by all
