-- What every trajectory is worth by itself: desirable or undesirable. A main turn's credit is 1 or -1, the label.
-- Why: a label needs no other attempt at the same item. The verifier's success decides, or the sign of the score where it says none.
-- The same draw counts once, as for methods that take ratios: the same words sampled twice are two labels.
-- Filtered: all but the best-scored copy of a draw, ties broken by id; rows whose score is neutral.
with labelled as (
    select
        *,
        case when success is not null then success when outcome <> 0 then outcome > 0 end as desirable,
        row_number() over (
            partition by item_id, policy_version, rollout_index, body
            order by reward desc nulls last, success desc nulls last, trajectory_id
        ) as copy
    from previous
)
select
    * exclude (desirable, copy),
    [case when t.kind = 'main' then case when desirable then 1 else -1 end end for t in turns]::double[] as credit,
    null::double[] as turn_rewards,
    case when copy > 1 then 'duplicate' when desirable is null then 'no verifier score but a neutral one' end as reason
from labelled
