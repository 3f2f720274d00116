-- Limit the rows of each user, session, item and source.
-- Why: else a long session, or an attacker with many rows, could determine the training data.
-- A lot chooses the rows, so that nobody can influence it by the time or the wording of a row; the lot is a digest of the
-- trajectory's id and falls the same on every night. Each quota counts what the ones before it have left.
-- Rows without a session or a user have no such quota.
-- Filtered, if a setting limits it: rows beyond a quota.
with drawn as (
    select lot, session_id, user_id, item_id, source from previous
    where coalesce(
        $quotas_per_session::int, $quotas_per_user::int, $quotas_per_item::int, $quotas_per_source::int, $quotas_captured::int
    ) is not null
),
sessions as (
    select *, case
        when session_id is not null and row_number() over (partition by session_id order by lot) > $quotas_per_session::int
        then 'beyond the quota of its session'
    end as cut
    from drawn
),
users as (
    select * replace (coalesce(cut, case
        when user_id is not null and row_number() over (partition by user_id, cut is null order by lot) > $quotas_per_user::int
        then 'beyond the quota of its user'
    end) as cut)
    from sessions
),
items as (
    select * replace (coalesce(cut, case
        when row_number() over (partition by item_id, cut is null order by lot) > $quotas_per_item::int
        then 'beyond the quota of its item'
    end) as cut)
    from users
),
sources as (
    select * replace (coalesce(cut, case
        when row_number() over (partition by source, cut is null order by lot) > $quotas_per_source::int
        then 'beyond the quota of its source'
    end) as cut)
    from items
),
captured as (
    select * replace (coalesce(cut, case
        when source = 'captured' and row_number() over (partition by source, cut is null order by lot) > $quotas_captured::int
        then 'beyond the ceiling on captured'
    end) as cut)
    from sources
)
select previous.* exclude (user_id), cut as reason
from previous left join captured using (lot)
