-- What cannot be trained on at all, whatever the method.
-- Why: training reads recorded tokens only; a greedy token (temperature 0) was not drawn from a distribution that a ratio could
-- compare with; a log-prob that is not finite poisons its whole batch.
-- Set aside: each row under the first reason that applies.
select
    *,
    case
        when tokens <> 'recorded' then 'tokens not recorded'
        when length > $max_tokens then 'too long'
        when trained = 0 then 'nothing to train on'
        when temperature = 0 then 'sampled at temperature 0'
        when not finite then 'log-prob not finite'
    end as reason
from previous
