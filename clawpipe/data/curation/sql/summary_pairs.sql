-- Compute figures of the pairs. A trajectory in several pairs counts once; a corrected reply is named by its trajectory and turn.
select
    (select count(distinct group_id) from "50_pairs_groups" where reason = 'no success in its group') as groups_without_success,
    (select count(distinct group_id) from "50_pairs_groups" where reason = 'no failure in its group') as groups_without_failure,
    (
        select count(distinct split_part(id, '#', 1))
        from (select chosen_id as id from previous union all select rejected_id from previous)
    ) as paired
