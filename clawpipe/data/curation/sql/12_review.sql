-- Filter rows that a person rejected, or that wait for a person where a setting wants each row approved.
-- Why: what a person decides about a row holds for every method. An edited row is replaced by one that holds the person's answer; that
-- answer was never drawn, so methods that take ratios have no use for it.
-- `reviews` holds the decisions; without it nobody has decided anything.
-- Filtered: rows that were rejected or edited, and by the setting those that nobody approved.
select
    previous.*,
    case
        when verdict = 'rejected' then 'rejected by a person'
        when verdict = 'edited' and $wants_ratios then 'edited by a person, whose text has no log-probs'
        when verdict = 'edited' then 'edited by a person'
        when verdict is null and $approved_only then 'waits for approval'
    end as reason
from previous left join (select row_id as trajectory_id, any_value(verdict) as verdict from reviews group by row_id)
    using (trajectory_id)
