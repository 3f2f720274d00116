-- What every turn is worth by itself: desirable or undesirable. A main turn's credit is 1 or -1, the label, or null: it has none.
-- Why: a label needs no other attempt at the same item. A turn that was praised or blamed has that label, and none where that is
-- disputed; another turn has the label of the whole, unless that is only what a judge said of single turns.
-- The whole's label is its success, or the sign of the score where it says none; a judge whose sign says nothing gives none.
-- The same draw counts once, as for methods that take ratios: the same words sampled twice are two labels.
-- Filtered: all but the best-scored copy of a draw, ties broken by id; rows without a label.
with labelled as (
    select
        *,
        case when not judged_by_turns then nullif(side_taken(success, case when takes_sides then outcome end), 0) end as label,
        row_number() over (
            partition by item_id, policy_version, rollout_index, body
            order by reward desc nulls last, success desc nulls last, trajectory_id
        ) as copy
    from previous
),
credited as (
    select
        * exclude (label),
        [case when t.kind = 'main' then nullif(coalesce(turn_signs[k], label), 0) end for t, k in turns]::double[] as credit
    from labelled
)
select
    * exclude (copy) replace (
        coalesce(list_sum([t."end" - t.start for t, k in turns if credit[k] is not null]), 0)::bigint as trained
    ),
    null::double[] as turn_rewards,
    case
        when copy > 1 then 'duplicate'
        when len(list_filter(credit, lambda c: c is not null)) = 0 then 'no verifier score but a neutral one'
    end as reason
from credited
