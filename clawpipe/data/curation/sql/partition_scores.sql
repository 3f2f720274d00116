-- Find the files of scores for each row range: the index of the row range (see partitions.sql), and the index of the file.
with measured as (
    select $row_ranges[file_index::int + 1] as row_range, hash(trajectory_id) as key
    from read_parquet($measures)
    where file_row_number >= $first_rows[file_index::int + 1] and file_row_number < $end_rows[file_index::int + 1]
),
scored as (
    select file_index::int as file, hash(trajectory_id) as key from read_parquet($scores)
)
select distinct row_range, file from measured join scored using (key) order by all
