-- Filter rows that no method can train on, and rows that the settings exclude.
-- Why: training reads recorded tokens only, imitation and preferences those of rendered text as well; a greedy token (temperature 0)
-- was not drawn from a distribution that a ratio could compare with; a log-prob that is not finite poisons its whole batch. Methods that
-- take ratios need log-probs that were measured, of the distribution that was sampled from.
-- The status of an attempt comes from its source; else an episode at its limit is truncated, and any other completed. An answer of
-- others that was cut off is no example of a whole one; own rollouts keep their group and their reward. A setting names what is wanted.
-- A conversation whose last answer was cut still holds answers that somebody praised, blamed or corrected before that. Methods that
-- learn turn by turn take those turns and no others, and dpo takes the corrections; nothing is said of the whole. Of the others neither
-- score nor hint counts any more.
-- Filtered: each row under the first reason that applies.
with cut as (
    select
        *,
        len($filters_endings::varchar[]) = 0 and source <> 'rollout' and ending in ('truncated', 'aborted') as is_cut,
        case
            when $method = 'kto' or ($method = 'sft' and $imitate <> 'chosen') then turn_signs::double[]
            when not $by_pairs and $method <> 'ppo' and $credit = 'turn' then turn_scores
            else []
        end as said
    from previous
),
whole as (
    select
        * exclude (said) replace (
            case when is_cut then [c for c in corrected if c.accepted < len(turns)] else corrected end as corrected
        ),
        [t.kind = 'main' and k < len(turns) and coalesce(said[k] <> 0, false) for t, k in turns] as spoken_of
    from cut
),
kept as (
    select * replace (
        case
            when is_cut
            then [{start: t.start, "end": t."end", kind: if(spoken_of[k], 'main', 'side'), finish_reason: t.finish_reason} for t, k in turns]
            else turns
        end as turns,
        [case when not is_cut or $by_pairs or spoken_of[k] then s end for s, k in turn_scores] as turn_scores,
        [case when not is_cut or $by_pairs or spoken_of[k] then s end for s, k in turn_signs] as turn_signs,
        [h and (not is_cut or $by_pairs or spoken_of[k]) for h, k in hinted] as hinted,
        case when is_cut and $by_pairs then null else reward end as reward,
        is_cut and not coalesce(list_contains(spoken_of, true), false) and not ($by_pairs and len(corrected) > 0) as is_cut
    )
    from whole
)
select
    * exclude (main_turns, logprobs_fault, is_cut, spoken_of),
    case
        when tokens not in ('recorded', 'rendered') then 'tokens not recorded'
        when length > $max_tokens then 'too long'
        when trained = 0 then 'nothing to train on'
        when tokens = 'recorded' and temperature = 0 then 'sampled at temperature 0'
        when not finite then 'log-prob not finite'
        when logprobs_fault is not null then logprobs_fault
        when demonstration and success is not true
        then case when replayed then 'replayed without success' else 'demonstration without success' end
        when len($filters_endings::varchar[]) > 0 and not list_contains($filters_endings::varchar[], ending) then 'attempt ' || ending
        when is_cut then 'attempt ' || ending
        when length < $filters_min_tokens::int then 'too short'
        when main_turns < $filters_min_turns::int then 'too few turns'
        when main_turns > $filters_max_turns::int then 'too many turns'
        when $filters_success_only and success is not true then 'no success'
        when outcome is null and coalesce($filters_min_score::double, $filters_max_score::double) is not null then 'no verifier score'
        when outcome < $filters_min_score::double or outcome > $filters_max_score::double then 'score out of range'
    end as reason
from kept
