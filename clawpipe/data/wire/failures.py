"""Whether a tool failed: as the record marks it, else as the tool's answer says.

| the record, or the answer | failed |
|---|---|
| `is_error`, `isError` or `failed` true; `error` true or a text; `status` or `state` of a failure | yes |
| `is_error`, `isError`, `failed` or `error` false | no, whatever the answer says |
| an object with an `error` that says something, also inside its `content` | yes |
| an object with `success` or `ok` false, or `isError` or `is_error` true | yes |
| any other object, such as one whose `error` is null, false, 0, empty or blank | no |
| nothing | yes where failures are counted; it is no fault of the turn |
| a text that begins with "error:", an exception's name and a colon, or a traceback; that ends with "command not found" | yes |
| any other text, such as "Error 404 means that a page is missing" | no |

An exit code other than 0 is no failure: programs that search or compare return one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.arguments import parsed_object

_FLAGS = ("is_error", "isError", "failed")
_FAILED_STATES = ("error", "failed", "output-error")
_SUCCESS = ("success", "ok")
UNMARKED: Mapping[int, bool] = {}  # tool results whose records say nothing
MARKS = "failed_results"  # key in `extra` of a stored conversation
_BEGINNING = r"(?:fatal )?[\w.]*(?:error|exception):|fatal:|traceback \(most recent call last\)"
_BEGINS = re.compile(rf"\s*(?:{_BEGINNING})", re.IGNORECASE)
_ENDS = re.compile(r"\bcommand not found\Z", re.IGNORECASE)
_LAST = len("command not found")


def call_failed(content: str, mark: bool | None = None) -> bool:
    """Whether a tool's answer counts as a failed call.

    Args:
        mark: what its record says, as `mark_of` reads it.
    """
    return mark if mark is not None else not content.strip() or reports_failure(content)


def reports_failure(content: str, mark: bool | None = None) -> bool:
    """Whether a tool's answer says that the call failed. Unlike `call_failed`, an empty answer says nothing."""
    if mark is not None:
        return mark
    answer = parsed_object(content)
    return _is_report(content) if answer is None else _says_so(answer)


def _is_report(text: str) -> bool:
    said = text.rstrip()
    return bool(_BEGINS.match(said) or _ENDS.search(said, max(len(said) - _LAST, 0)))


def mark_of(record: Mapping[str, Any]) -> bool | None:
    """Return whether the record of a tool result marks it as failed; None if it does not say."""
    flags = [flag for name in _FLAGS if isinstance(flag := record.get(name), bool)]
    error = record.get("error")
    if any(flags) or _says_something(error) or any(record.get(name) in _FAILED_STATES for name in ("status", "state")):
        return True
    return False if flags or error is False else None


def failed_results(extra: str | None) -> dict[int, bool]:
    """Return the marks of tool results, by the index of their message, from the `extra` of a stored conversation."""
    stored = (parsed_object(extra) or {}).get(MARKS) if extra else None
    return {int(place): mark for place, mark in stored.items()} if isinstance(stored, dict) else {}


def _says_so(answer: JsonObject) -> bool:
    flags = [answer[name] for name in _FLAGS[:2] if isinstance(answer.get(name), bool)]
    if flags:
        return any(flags)
    inner = answer.get("content")
    errors = [answer.get("error"), inner.get("error") if isinstance(inner, dict) else None]
    return any(map(_says_something, errors)) or any(answer.get(name) is False for name in _SUCCESS)


def _says_something(error: Any) -> bool:
    return bool(error.strip() if isinstance(error, str) else error)
