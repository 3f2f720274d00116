-- Which files of scores hold any of the trajectories of which run: the number of the run (see cohorts.sql), and the place of the file.
with measured as (
    select $runs[file_index::int + 1] as run, hash(trajectory_id) as key
    from read_parquet($measures)
    where file_row_number >= $first_rows[file_index::int + 1] and file_row_number < $end_rows[file_index::int + 1]
),
scored as (
    select file_index::int as file, hash(trajectory_id) as key from read_parquet($scores)
)
select distinct run, file from measured join scored using (key) order by all
