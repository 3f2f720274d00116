-- Filter replies of low quality: in another script, repetitive, or with many failed calls.
-- Why by script: it separates Chinese from English, but not English from French; it needs no model and is never in doubt.
-- Repetition is measured reply by reply and the worst counts; a limit on it cuts loops, which share nearly all of their n-grams.
-- If the source counts no failed calls, the malformed calls count. Rows that cannot be measured stay.
-- Rounded, because 1 - 1/3 is a little more than 2/3.
-- Filtered, if a setting asks for it: each row under the first reason that applies.
select
    * exclude (in_script, repetition, tool_error_rate),
    case
        when round(in_script - $filters_script_share, 9) < 0 then 'reply in another script'
        when round(repetition - $filters_max_repetition::double, 9) > 0 then 'reply repeats itself'
        when round(tool_error_rate - $filters_max_tool_error_rate::double, 9) > 0 then 'too many tool errors'
    end as reason
from previous
