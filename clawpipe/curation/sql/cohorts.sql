-- Which stretches of rows a step may compare: those that have a trajectory, a group, or what the method takes for copies in common.
-- A stretch is known by its number: `stretches` holds that of each file of measures, and of such a file a stretch has the rows from
-- `first_rows` up to `end_rows`. Two numbers a row: every stretch with such rows, beside the first of them.
with keys as not materialized (
    select
        $stretches[file_index::int + 1] as stretch,
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
    select key, min(stretch) as first from keys where key is not null group by key having min(stretch) < max(stretch)
)
select distinct first, stretch from keys join shared using (key) where stretch > first order by all
