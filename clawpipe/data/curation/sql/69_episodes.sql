-- Share the weight of an episode among the rows that it left, where the loss is a mean over rows.
-- Why: an episode is one draw. As many rows as its program began anew would otherwise count as many draws. A mean over tokens needs
-- no weights: each token counts once there, however the episode's tokens are divided into rows.
-- A row's share is that of its trained tokens, or for labels of whole rows (kto) an equal one.
-- Filtered: nothing.
with sizes as (
    select lot, episode, case when $method = 'kto' then 1 else trained end::bigint as size from previous where episode is not null
),
shares as (
    select lot, size / sum(size) over (partition by episode) as share from sizes
)
select previous.* replace (weight * coalesce(share, 1) as weight), null::varchar as reason
from previous left join shares using (lot)
