-- Figures of the pairing. A trajectory may be in several pairs and is counted once.
select
    (select count(distinct group_id) from "50_dpo_groups" where reason = 'no success in its group') as groups_without_success,
    (select count(distinct group_id) from "50_dpo_groups" where reason = 'no failure in its group') as groups_without_failure,
    (select count(*) from (select chosen_id from previous union select rejected_id from previous)) as paired
