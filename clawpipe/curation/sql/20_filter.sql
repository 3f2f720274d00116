-- Filter rows that no method can train on, and rows that the settings exclude.
-- Why: training reads recorded tokens only, imitation and preferences those of rendered text as well; a greedy token (temperature 0) was not drawn from a distribution that a ratio could
-- compare with; a log-prob that is not finite poisons its whole batch. Methods that take ratios need log-probs that were measured, of
-- the distribution that was sampled from.
-- The status of an attempt comes from its source; else an episode at its limit is truncated, and any other completed. An answer of
-- others that was cut off is no example of a whole one; own rollouts keep their group and their reward. A setting names what is wanted.
-- Filtered: each row under the first reason that applies.
select
    * exclude (main_turns, logprobs_fault),
    case
        when tokens not in ('recorded', 'rendered') then 'tokens not recorded'
        when length > $max_tokens then 'too long'
        when trained = 0 then 'nothing to train on'
        when tokens = 'recorded' and temperature = 0 then 'sampled at temperature 0'
        when not finite then 'log-prob not finite'
        when logprobs_fault is not null then logprobs_fault
        when demonstration and success is not true then 'demonstration without success'
        when len($filters_endings::varchar[]) > 0 and not list_contains($filters_endings::varchar[], ending) then 'attempt ' || ending
        when len($filters_endings::varchar[]) = 0 and source <> 'rollout' and ending in ('truncated', 'aborted')
        then 'attempt ' || ending
        when length < $filters_min_tokens::int then 'too short'
        when main_turns < $filters_min_turns::int then 'too few turns'
        when main_turns > $filters_max_turns::int then 'too many turns'
        when $filters_success_only and success is not true then 'no success'
        when outcome is null and coalesce($filters_min_score::double, $filters_max_score::double) is not null then 'no verifier score'
        when outcome < $filters_min_score::double or outcome > $filters_max_score::double then 'score out of range'
    end as reason
from previous
