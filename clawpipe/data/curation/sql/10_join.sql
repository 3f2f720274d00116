-- Make one narrow row for each trajectory: ids, lengths, digests, turns, scores, and whether it has hindsight.
-- measures.sql has measured its tokens and messages before.
-- Pairs of whole trajectories need no turns, so they do not carry them.
-- Why: the steps filter rows without reading tokens or messages; the last step reads those, once.
-- Of several verifier scores of a trajectory the first by scorer name counts. Of several scores of a turn the one nearest to a
-- person counts: a user's, then that of a custom scorer, then a verifier's, then a judge's; among equals the first by scorer name.
-- Feedback that was given again on one turn counts by its last word: who takes a thumb back means the later one.
-- A user's word on the whole bounds what others say of its turns: under a thumb down nobody else's praise of a turn counts, and under
-- a thumb up nobody else's blame: such a score becomes 0. The user's own word on a turn stands.
-- `turn_signs` is for methods that learn from outcomes: 1 of a turn that was praised, -1 of one that was blamed, 0 where it is disputed
-- between a turn's score and a user or a verifier who speaks of the whole, null where nobody said. The sign of a scorer's numbers says
-- nothing where its score of the whole does not say success: then neither such a score of a turn nor that of the whole takes a side.
-- What was imported is judged by whatever score came with it: a verifier's, then a user's, then a custom scorer's, then a judge's.
-- By the setting `step_weight` a reward is the outcome plus that times the mean score of the turns, where they have any; `outcome` stays
-- what it was, and filters ask for it. A critic has the scores of the turns as rewards of their own, so there the reward is the outcome.
-- Where the parts of rewards are compared, `parts` holds them: the verifier's own, if its evidence names `parts`, and other scorers'.
-- A trajectory given twice counts once. Each main turn has the hindsight of the whole trajectory, in the form for the teacher, and
-- the hindsight text of its own turn; what is replayed from earlier nights has none, since the teacher is shown tonight's hints alone.
-- For methods with ratios what is replayed is a demonstration by the policy itself: its successes are imitated. Why: a ratio with an old
-- policy is clipped, and a group that always succeeded has no advantage, so neither holds what the policy can do and may lose.
-- Filtered: later copies of a trajectory id.
with known as (
    from scores_layout union all by name from read_parquet($scores, union_by_name = $mixed_scores)  -- older files lack columns: null
),
verdict as (
    select
        trajectory_id, value as reward, success, origin, origin <> 'judge' or success is not null as takes_sides,
        case when $advantage = 'parts' then parts_of(evidence, scorer, value) end as parts
    from known
    where turn is null
    qualify row_number() over (
        partition by trajectory_id
        order by list_position(['verifier', 'user', 'custom', 'judge'], origin), scorer, value, success
    ) = 1
),
person as (
    select trajectory_id, side_taken(success, value) as word
    from known
    where turn is null and origin = 'user'
    qualify row_number() over (partition by trajectory_id order by scorer, value, success) = 1
),
unsigned as (
    select distinct trajectory_id, scorer from known where turn is null and success is null and value <> 0 and origin = 'judge'
),
turn_verdict as (
    select
        trajectory_id, turn, value, origin = 'user' as own,
        case when (trajectory_id, scorer) not in (from unsigned) then sign(value) end as "sign"
    from known
    where turn is not null
    qualify row_number() over (
        partition by trajectory_id, turn
        order by list_position(['user', 'custom', 'verifier', 'judge'], origin), first_said(scorer), times_said(scorer) desc, value
    ) = 1
),
by_turn as (
    select
        trajectory_id,
        map_from_entries(list({k: turn, v: {value: value, "sign": "sign", own: own}} order by turn)) as scored
    from turn_verdict group by trajectory_id
),
hindsight as (
    select distinct trajectory_id, true as whole from known
    where turn is null and case $hint
        when 'text' then len(list_filter(hints, lambda hint: regexp_matches(hint, '[^\s\p{Z}]'))) > 0
        when 'demonstration' then len(demonstration) > 0
    end
),
turn_hindsight as (
    select trajectory_id, list(distinct turn) as hinted_turns from known
    where turn is not null and $hint = 'text' and len(list_filter(hints, lambda hint: regexp_matches(hint, '[^\s\p{Z}]'))) > 0
    group by trajectory_id
),
measured as (
    select
        * exclude (file, row, file_index, runs) replace (
            case when not $by_pairs or $wants_acts then turns end as turns,
            case when not $by_pairs or $wants_acts then numbers end as numbers
        ),
        ($first_files[file_index::int + 1] + file)::bigint as file_index, row as file_row_number,
        lot(trajectory_id) as lot
    from (
        select *, file_index from read_parquet($measures)
        where file_row_number >= $first_rows[file_index::int + 1] and file_row_number < $end_rows[file_index::int + 1]
    )
),
twice as (
    select trajectory_id, min((file_index, file_row_number)) as first
    from measured group by trajectory_id having count(*) > 1
),
joined as (
    select
        measured.*,
        case when verdict.origin = 'verifier' or source <> 'rollout' then reward end as reward,
        case when verdict.origin = 'verifier' or source <> 'rollout' then success end as success,
        case when verdict.origin = 'verifier' or source <> 'rollout' then parts end as parts,
        case
            when scored is null then list_resize([], len(turns), null)
            else [case when t.kind = 'main' then scored[numbers[k]] end for t, k in turns]
        end::struct(value double, "sign" tinyint, own bool)[] as said,
        coalesce(takes_sides, true) as takes_sides,
        person.word as person_word,
        coalesce(person.word, case when verdict.origin = 'verifier' then side_taken(verdict.success, verdict.reward) end) as whole_word,
        coalesce(verdict.origin, 'judge') = 'judge' and len(list_filter(said, lambda s: s."sign" <> 0)) > 0 as judged_by_turns,
        case
            when $w_opd > 0
            then [
                t.kind = 'main' and file_index < $replayed_from
                and (coalesce(whole, false) or coalesce(list_contains(hinted_turns, numbers[k]), false))
                for t, k in turns
            ]
        end as hinted
    from measured left join verdict using (trajectory_id) left join by_turn using (trajectory_id)
        left join person using (trajectory_id)
        left join hindsight using (trajectory_id) left join turn_hindsight using (trajectory_id)
),
bounded as (
    select
        joined.* exclude (said, person_word, whole_word),
        [case when disputed(s.value, s.own, person_word) then 0 else s.value end for s in said]::double[] as turn_scores,
        [case when disputed(s."sign", s.own, whole_word) then 0 else nullif(s."sign", 0) end for s in said]::tinyint[] as turn_signs,
        [coalesce(s."sign" < 0, false) for s in said] as blamed,
        [coalesce(s."sign" > 0 and not disputed(s.value, s.own, person_word), false) for s in said] as praised
    from joined
)
select
    bounded.* exclude (answered, blamed, praised) replace (
        case
            when $step_weight = 0 or $method = 'ppo' then reward
            else reward + $step_weight * coalesce(list_avg(list_filter(turn_scores, lambda s: s is not null)), 0)
        end as reward,
        demonstration or file_index >= $imitated_from as demonstration
    ),
    bounded.reward as outcome, 1.0::double as weight, file_index >= $replayed_from as replayed,
    case when answered is not null then corrections_in(answered, blamed, praised) else [] end as corrected,
    case when (file_index, file_row_number) > twice.first then 'trajectory given twice' end as reason
from bounded left join twice using (trajectory_id)
