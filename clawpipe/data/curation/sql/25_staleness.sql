-- Filter rows of old policy versions.
-- Why: importance ratios correct a small distance between two policies, but not a large one.
-- `versions` are policy versions, the newest first; the newest is 0 versions old.
-- Filtered, if the setting limits the age: rows of older versions, and of versions that are not among them.
select
    *,
    case
        when $max_staleness::int is null then null
        when list_position($versions::varchar[], policy_version) is null then 'policy version unknown'
        when list_position($versions::varchar[], policy_version) - 1 > $max_staleness then 'policy version too old'
    end as reason
from previous
