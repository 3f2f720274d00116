-- Pairs of trajectories that may say nearly the same, because some band of their signatures is equal.
-- Why: of a text that is there a million times every pair is a candidate; so a row is compared with the first rows of its bucket
-- alone, two of each of the first eight items, and two of its own item. A row that is nobody's candidate there repeats none of them.
-- First is by dataset, then by id: neither the order of rows nor the number of files matters.
with known as (
    select place, trajectory_id, item_id, shingles, keys
    from read_parquet($signatures, filename = true) as signature join sources using (filename)
    qualify row_number() over (partition by trajectory_id order by place) = 1  -- a trajectory that is stored twice is one
),
signed as (
    select place, trajectory_id, item_id, shingles, unnest(keys) as key, generate_subscripts(keys, 1) as band from known
),
shared as (
    select band, key from signed group by all having count(*) > 1 and max(place) >= $first_new
),
ranked as (
    select
        *,
        row_number() over (partition by band, key, item_id order by place, trajectory_id) as place_in_item,
        min((place, trajectory_id)) over (partition by band, key, item_id) as first_of_item
    from signed semi join shared using (band, key)
),
placed as (
    select *, dense_rank() over (partition by band, key order by first_of_item) as item_place from ranked
),
heads as (
    select * from placed where place_in_item <= 2
)
select distinct
    later.trajectory_id, earlier.trajectory_id as repeats, later.item_id = earlier.item_id as same_item,
    earlier.place >= $first_new as within, later.shingles + earlier.shingles as shingles
from placed as later join heads as earlier
    on later.band = earlier.band and later.key = earlier.key
    and (earlier.place, earlier.trajectory_id) < (later.place, later.trajectory_id)
    and (earlier.item_place <= 8 or earlier.item_id = later.item_id)
where later.place >= $first_new
order by all
