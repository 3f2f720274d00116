-- Take a person's approval for success where nobody has scored a row: who imitates or labels has nothing else to go by.
-- Why: approving lets a row teach what its scores say; it does not praise a turn that was blamed.
-- Filtered: nothing.
select
    * replace (
        case when approved then 1.0 else reward end as reward,
        case when approved then 1.0 else outcome end as outcome,
        case when approved then true else success end as success
    ),
    null as reason
from (
    select
        *,
        $method in ('sft', 'kto') and source <> 'rollout' and coalesce(reward, success::double) is null and not judged_by_turns
            and trajectory_id in (select row_id from reviews where verdict = 'approved') as approved
    from previous
)
