-- Which files of scores hold any trajectory of which stretch: the number of the stretch (see cohorts.sql), the place of the file.
with measured as (
    select $stretches[file_index::int + 1] as stretch, hash(trajectory_id) as key
    from read_parquet($measures)
    where file_row_number >= $first_rows[file_index::int + 1] and file_row_number < $end_rows[file_index::int + 1]
),
scored as (
    select file_index::int as file, hash(trajectory_id) as key from read_parquet($scores)
)
select distinct stretch, file from measured join scored using (key) order by all
