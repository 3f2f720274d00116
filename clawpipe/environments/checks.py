"""Checks of a reply against what was expected: pure functions, named in a file of prompts.

Each takes the policy's last message and the expected answer, and returns whether the reply is right. A function of the user's,
`path/to/file.py:NAME`, does the same.
"""

from __future__ import annotations

import json
import math
import re
import string
import unicodedata
from collections.abc import Callable
from typing import Any

from clawpipe.extensions import ExtensionPoint
from clawpipe.messages import Message
from clawpipe.schemas import argument_error, check_schema
from clawpipe.wire.arguments import comparable, comparable_json

Check = Callable[[Message, Any], bool]

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_TOLERANCE = 1e-6  # relative
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def exact(reply: Message, answer: Any) -> bool:
    """Whether the reply is the answer, apart from white space around it."""
    return reply.content.strip() == str(answer).strip()


def normalized(reply: Message, answer: Any) -> bool:
    """Whether the reply is the answer, apart from case, punctuation, articles and white space (the match of SQuAD)."""
    return _normal(reply.content) == _normal(str(answer))


def contains(reply: Message, answer: Any) -> bool:
    """Whether the reply contains the answer as words, normalized like `normalized`."""
    return f" {_normal(str(answer))} " in f" {_normal(reply.content)} "


def numeric(reply: Message, answer: Any) -> bool:
    """Whether the last number in the reply is the answer's last number, to a relative 1e-6; commas may group thousands."""
    found, expected = _last_number(reply.content), _last_number(str(answer))
    return found is not None and expected is not None and math.isclose(found, expected, rel_tol=_TOLERANCE, abs_tol=1e-12)


def regex(reply: Message, answer: Any) -> bool:
    """Whether the regular expression `answer` matches somewhere in the reply."""
    return re.search(str(answer), reply.content) is not None


def json_schema(reply: Message, answer: Any) -> bool:
    """Whether the reply is JSON that fits the schema `answer`; it may stand in a fenced block."""
    fenced = _FENCED.search(reply.content)
    try:
        value = json.loads(fenced[1] if fenced else reply.content)
    except ValueError:
        return False
    return not argument_error(answer, value)


def tool_call(reply: Message, answer: Any) -> bool:
    """Whether the reply calls exactly what `answer` says, in any order: `{"name": ..., "arguments": {...}}`, or a list of these."""
    wanted = answer if isinstance(answer, list) else [answer]
    if any(call.malformed for call in reply.tool_calls):
        return False
    asked = [(call["name"], comparable_json(call.get("arguments", {}))) for call in wanted]
    return sorted(map(comparable, reply.tool_calls)) == sorted(asked)


def state(reply: Message, answer: Any) -> bool:
    """Whether calls return, once an episode is over, what `answer` says: `{"name": ..., "arguments": {...}, "result": ...}`, or a
    list of these. The environment makes the calls; the reply's content is a JSON list of what they returned. A result that is JSON
    is compared as a value."""
    wanted = answer if isinstance(answer, list) else [answer]
    return [_value(result) for result in json.loads(reply.content)] == [_value(call["result"]) for call in wanted]


def unusable(check: str, answer: Any) -> str:
    """Return why a built-in check cannot use an answer; "" if it can, and for a check of the user's."""
    if check not in CHECKS.built_in:
        return ""
    if answer is None:
        return "no answer to check against"
    try:
        _require_usable(check, answer)
    except (ValueError, re.error) as error:
        return f"the check {check} cannot use this answer: {error}"
    return ""


def _require_usable(check: str, answer: Any) -> None:
    if check == "regex":
        re.compile(str(answer))
    elif check == "numeric" and _last_number(str(answer)) is None:
        raise ValueError("it holds no number")
    elif check == "json_schema":
        check_schema(answer)
    elif check in ("tool_call", "state"):
        calls = answer if isinstance(answer, list) else [answer]
        if not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
            raise ValueError("it is no call with a name")
        if check == "state" and not all("result" in call for call in calls):
            raise ValueError("it does not say what the call returns: `result`")


CHECKS = ExtensionPoint(
    "check",
    "check",
    {
        name: f"{__name__}:{name}"
        for name in ("exact", "normalized", "contains", "numeric", "regex", "json_schema", "tool_call", "state")
    },
)


def _normal(text: str) -> str:
    words = unicodedata.normalize("NFKC", text).casefold().translate(_PUNCTUATION).split()
    return " ".join(word for word in words if word not in ("a", "an", "the"))


def _last_number(text: str) -> float | None:
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "")) if numbers else None


def _value(result: Any) -> str:
    """Return what a result says, so that it can be compared: text that is JSON is the value that it writes."""
    try:
        return comparable_json(json.loads(result) if isinstance(result, str) else result)
    except ValueError:
        return comparable_json(str(result).strip())
