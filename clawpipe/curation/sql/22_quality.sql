-- Replies that no policy should learn to give: in another script, going in circles, full of failed calls.
-- Why so coarse: a script tells Chinese from English and not English from French, but it needs no model and is never in doubt.
-- Repetition is measured reply by reply and the worst counts; a limit on it cuts loops, which share nearly all of their n-grams.
-- Where the source counts no failed calls, the malformed ones are known to have failed. What cannot be measured stays.
-- Rounded, because 1 - 1/3 is a little more than 2/3.
-- Set aside, if a setting asks for it: each row under the first reason that applies.
select
    * exclude (in_script, repetition, tool_error_rate),
    case
        when round(in_script - $filters_script_share, 9) < 0 then 'reply in another script'
        when round(repetition - $filters_max_repetition::double, 9) > 0 then 'reply repeats itself'
        when round(tool_error_rate - $filters_max_tool_error_rate::double, 9) > 0 then 'too many tool errors'
    end as reason
from previous
