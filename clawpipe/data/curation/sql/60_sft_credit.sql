-- Give each main turn to imitate the advantage 1: imitation weighs all turns equally.
-- Why: a conversation that went well on the whole may hold a turn that went wrong. A turn that was blamed leaves the mask, and one whose
-- praise or blame is disputed. Of a conversation that was no success only the turns that were praised are imitated.
-- Filtered: rows of which no turn is left.
with credited as (
    select
        *,
        case $imitate when 'success' then success is true when 'any' then success is not false else true end as imitated
    from previous
),
masked as (
    select
        * exclude (imitated),
        [case when t.kind = 'main' and (turn_signs[k] = 1 or (imitated and turn_signs[k] is null)) then 1 end for t, k in turns]::double[]
            as credit
    from credited
)
select
    * replace (coalesce(list_sum([t."end" - t.start for t, k in turns if credit[k] is not null]), 0)::bigint as trained),
    null::double[] as turn_rewards,
    case when not list_contains(credit, 1) then 'every turn blamed' end as reason
from masked
