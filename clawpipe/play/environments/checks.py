"""Checks of a reply against what was expected: pure functions, named in a file of prompts.

Each takes the policy's last message and the expected answer, and returns whether the reply is right; one without words and calls
is never right. A function of the user's, `path/to/file.py:NAME`, does the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from clawpipe.core.basics.patterns import OUT_OF_TIME, occurs
from clawpipe.core.basics.schemas import argument_error, check_schema
from clawpipe.core.conversation.messages import Message
from clawpipe.core.user_code.extensions import ExtensionPoint
from clawpipe.data.wire.arguments import comparable, comparable_json
from clawpipe.play.environments.answers import is_blank, last_number, normal

Check = Callable[[Message, Any], bool]

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_TOLERANCE = 1e-6  # relative
_OF_TEXTS = ("exact", "normalized", "contains", "numeric", "regex")  # compare a reply with one text or number


def exact(reply: Message, answer: Any) -> bool:
    """Whether the reply is the answer, apart from white space around it."""
    return _says_something(reply) and reply.content.strip() == str(answer).strip()


def normalized(reply: Message, answer: Any) -> bool:
    """Whether the reply is the answer, apart from case, punctuation, articles and white space; see `normal`."""
    return _says_something(reply) and normal(reply.content) == normal(str(answer)) != ""


def contains(reply: Message, answer: Any) -> bool:
    """Whether the reply contains the answer as words, normalized like `normalized`: "The answer is A." contains "A", "A dog" does
    not."""
    wanted = normal(str(answer))
    return wanted != "" and f" {wanted} " in f" {normal(reply.content)} "


def numeric(reply: Message, answer: Any) -> bool:
    """Whether the last number in the reply is the answer's last number, to a relative 1e-6; see `last_number`."""
    found, expected = last_number(reply.content), last_number(str(answer))
    return found is not None and expected is not None and math.isclose(found, expected, rel_tol=_TOLERANCE, abs_tol=1e-12)


def regex(reply: Message, answer: Any) -> bool:
    """Whether the regular expression `answer` matches somewhere in the reply, within `clawpipe.core.basics.patterns.SECONDS`."""
    return _says_something(reply) and occurs(str(answer), reply.content) is True


def json_schema(reply: Message, answer: Any) -> bool:
    """Whether the reply is JSON that fits the schema `answer`; it may stand in a fenced block."""
    fenced = _FENCED.search(reply.content)
    try:
        value = json.loads(fenced[1] if fenced else reply.content)
    except (ValueError, RecursionError):
        return False
    return not argument_error(answer, value)


def tool_call(reply: Message, answer: Any) -> bool:
    """Whether the reply calls exactly what `answer` says, in any order: `{"name": ..., "arguments": {...}}`, or a list of these; an
    empty list: nothing. Numbers are equal by value: 2.0 is 2, but "2" is not, nor is true 1."""
    wanted = [(call["name"], comparable_json(call.get("arguments") or {})) for call in _calls(answer)]
    readable = not any(call.malformed for call in reply.tool_calls)
    return readable and _says_something(reply) and sorted(map(comparable, reply.tool_calls)) == sorted(wanted)


def state(reply: Message, answer: Any) -> bool:
    """Whether calls return, once an episode is over, what `answer` says: `{"name": ..., "arguments": {...}, "result": ...}`, or a
    list of these. The environment makes the calls; the reply's content is a JSON list of what they returned. A result that is JSON
    is compared as a value."""
    returned = [comparable_json(_value(result)) for result in json.loads(reply.content)]
    return returned == [comparable_json(_value(call["result"])) for call in _calls(answer)]


def why_wrong(check: str, reply: Message, answer: Any) -> str:
    """Return why a check did not accept a reply, in one phrase."""
    if check == "regex" and occurs(str(answer), reply.content) is None:
        return OUT_OF_TIME
    return f"not {check}"


def unusable(check: str, answer: Any) -> str:
    """Return why a built-in check cannot use an answer; "" if it can, and for a check of the user's."""
    if check not in CHECKS.built_in:
        return ""
    if answer is None:
        return "no answer to check against"
    try:
        _require_usable(check, answer)
    except ValueError as error:
        return f"the check {check} cannot use this answer: {error}"
    return ""


def _require_usable(check: str, answer: Any) -> None:
    if check in _OF_TEXTS and isinstance(answer, list | dict):
        raise ValueError("it is a list or an object, and no text; several right answers are a regex, or a check of yours")
    if check == "regex":
        occurs(str(answer), "")
    elif check == "numeric" and last_number(str(answer)) is None:
        raise ValueError("it holds no number")
    elif check == "exact" and is_blank(str(answer)):
        raise ValueError("it is empty")
    elif check in ("normalized", "contains") and not normal(str(answer)):
        raise ValueError("without punctuation nothing is left of it; the check exact compares it as it is")
    elif check == "json_schema":
        check_schema(answer)
    elif check in ("tool_call", "state"):
        _require_calls(check, _calls(answer))


def _require_calls(check: str, calls: list[Any]) -> None:
    if not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        raise ValueError("it is no call with a name")
    if not all(isinstance(call.get("arguments") or {}, dict) for call in calls):
        raise ValueError("its arguments are no object")
    if check == "state" and not (calls and all("result" in call for call in calls)):
        raise ValueError("it does not say what the call returns: `result`")


CHECKS = ExtensionPoint(
    "check",
    "check",
    {
        name: f"{__name__}:{name}"
        for name in ("exact", "normalized", "contains", "numeric", "regex", "json_schema", "tool_call", "state")
    },
)


def _says_something(reply: Message) -> bool:
    return not is_blank(reply.content) or bool(reply.tool_calls)


def _calls(answer: Any) -> list[Any]:
    return answer if isinstance(answer, list) else [answer]


def _value(result: Any) -> str:
    """Return what a result says, so that it can be compared: text that is JSON is the value that it writes."""
    try:
        return comparable_json(json.loads(result) if isinstance(result, str) else result)
    except ValueError:
        return comparable_json(str(result).strip())
