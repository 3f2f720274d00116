-- What a policy said long ago says little about the policy that is trained.
-- Why: importance ratios correct a small distance between two policies, and have no use where it is large.
-- `versions` are policy versions, the newest first; the newest is 0 versions old.
-- Set aside, if the setting limits the age: rows of older versions, and of versions that are not among them.
select
    *,
    case
        when $max_staleness::int is null then null
        when list_position($versions::varchar[], policy_version) is null then 'policy version unknown'
        when list_position($versions::varchar[], policy_version) - 1 > $max_staleness then 'policy version too old'
    end as reason
from previous
