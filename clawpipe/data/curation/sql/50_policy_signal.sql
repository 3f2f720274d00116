-- Filter rows without a signal for any term of the loss.
-- Why: an advantage is a difference within a group; a group of one and a group of equal rewards have none, and counting their
-- tokens in the loss's normaliser would only shrink the others' step. Turn by turn, a score of 0 is neutral. A teacher
-- has a signal for turns with hindsight. A term with weight 0 has no signal. A demonstration is imitated: it is compared with nothing,
-- and no rollout with it.
-- Filtered: rows without a signal from any term. A setting keeps zero-variance groups; their advantages are then 0.
-- An episode that left several rows is one draw: it counts once in its group, and has one reward, the mean of its rows' rewards, and so
-- one of each part.
-- Where parts of rewards are compared, it is enough that one of them differs: of (0, 1) and (1, 0) the sums are equal. A part of weight 0
-- has no say.
with several as (
    select group_id, episode, list_avg(list(reward order by trajectory_id)) as reward, min(trajectory_id) as first
    from previous where episode is not null group by group_id, episode
),
several_parts as (
    select group_id, episode, map_from_entries(list({k: name, v: value} order by name)) as parts from (
        select group_id, episode, part.key as name, list_avg(list(part.value order by trajectory_id)) as value from (
            select group_id, episode, trajectory_id, unnest(map_entries(parts)) as part from previous where episode is not null
        ) group by group_id, episode, part.key
    ) group by group_id, episode
),
drawn as (
    select
        previous.* replace (
            coalesce(several.reward, previous.reward) as reward, coalesce(several_parts.parts, previous.parts) as parts
        ),
        episode is null or trajectory_id = several.first as stands
    from previous left join several using (group_id, episode) left join several_parts using (group_id, episode)
),
part_values as (
    select group_id, unnest(map_entries(parts)) as part from drawn where $advantage = 'parts' and not demonstration
),
part_spread as (
    select group_id, bool_or(varied) as varied from (
        select
            group_id,
            differ(max(part.value), min(part.value))
            and coalesce(list_extract($part_factors::double[], list_position($part_names::varchar[], part.key)), 1) > 0 as varied
        from part_values group by group_id, part.key
    ) group by group_id
),
spread as (
    select
        group_id, count(reward) filter (where stands) as rollouts,
        coalesce(any_value(part_spread.varied), differ(max(reward), min(reward))) as varied
    from drawn left join part_spread using (group_id) where not demonstration group by group_id
),
signals as (
    select
        drawn.*, varied,
        not demonstration and $w_rl > 0 and case $credit
            when 'turn' then len(list_filter(turn_scores, lambda s: s <> 0)) > 0
            when 'step' then len(list_filter(turn_scores, lambda s: s is not null)) > 0
            else reward is not null and (varied or not $drop_zero_variance_groups)
        end as rewarded,
        not demonstration and $w_opd > 0 and list_bool_or(hinted) as taught,
        case
            when $credit in ('turn', 'step') and len(list_filter(turn_scores, lambda s: s is not null)) = 0 then 'no turn score'
            when $credit = 'turn' then 'only neutral turns'
            when reward is null then 'no verifier score'
            when rollouts = 1 then 'group of one'
            else 'zero-variance group'
        end as reason_without_signal
    from drawn left join spread using (group_id)
)
select
    * exclude (reason_without_signal),
    case
        when rewarded or taught or demonstration then null
        when $w_rl = 0 then 'no hint'
        when $w_opd = 0 then reason_without_signal
        else reason_without_signal || ', no hint'
    end as reason
from signals
