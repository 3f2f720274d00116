-- Which datasets have rows that a step may compare: those of one trajectory, one group, or one key by which the method looks for
-- copies. Datasets are told by number: `places` and `score_places` hold one for each file of measures and of scores.
-- Two numbers a row: every dataset with such rows, beside the first of them.
with keys as (
    select
        $places[file_index::int + 1] as place,
        unnest([
            hash('trajectory', trajectory_id),
            hash('group', group_id),
            case $copies
                when 'draw' then hash('draw', item_id, policy_version, rollout_index, body)
                when 'conversation' then hash('conversation', body)
            end
        ]) as key
    from read_parquet($measures)
    union all
    select $score_places[file_index::int + 1], hash('trajectory', trajectory_id) from read_parquet($scores)
),
shared as (
    select key, min(place) as first from keys where key is not null group by key having min(place) < max(place)
)
select distinct first, place from keys join shared using (key) where place > first order by all
