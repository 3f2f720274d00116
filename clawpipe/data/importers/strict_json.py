"""Parse standard JSON only: one object on each line.

Parsers differ in what they accept: a duplicate key (the last value wins in silence), NaN, numbers beyond a double, halves of a
surrogate pair, NUL. Data from outside is accepted only if all parsers read the same value.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from clawpipe.core.basics.json_types import JsonObject

MAX_LINE = 32 << 20  # bytes
MAX_DEPTH = 64
BLANK = "blank line"  # a reason for a refusal
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_INTEGERS = range(-(2**63), 2**64)  # beyond it, parsers round in silence
_NO_NUMBER = re.compile(rb"NaN|Infinity")
_SPACED_KEY = re.compile(rb'"\s+:')


class RefusedError(ValueError):
    """A line that is not a record. `args[0]` is the reason, one of a small set, so that reasons can be counted."""


class Reasons:
    """Collects the reasons against a record, so that all of them are said and not the first alone. As a context manager it notes a
    RefusedError that is raised within, and goes on behind it."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def add(self, reason: str) -> None:
        self._found.setdefault(reason)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, RefusedError):
            self.add(str(error))
        return isinstance(error, RefusedError)

    def raise_all(self) -> None:
        """Raise RefusedError with all reasons, if there are any."""
        if self._found:
            raise RefusedError("; ".join(self._found))


def parse_object(line: bytes) -> JsonObject:
    """Parse the JSON object on a line.

    Raises:
        RefusedError: blank, too long, not UTF-8, a byte order mark, not JSON, not an object, nested too deeply, a key given twice,
            NUL in a text, NaN, a number that no double holds, an integer beyond 64 bits.
    """
    check_bytes(line)
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RefusedError(_why_no_json(line, error)) from None
    if not isinstance(value, dict):
        raise RefusedError("not a JSON object")
    if may_repeat_a_key(line, count_keys(value, MAX_DEPTH)):
        refuse_repeated_keys(line)
    if _LONG_NUMBER.search(line):
        json.loads(line, parse_int=_integer)
    return value


def check_bytes(line: bytes) -> None:
    """Check the bytes of a line for errors that parsers may accept.

    Raises:
        RefusedError: blank, too long, a byte order mark, NUL in a text.
    """
    if len(line) > MAX_LINE:
        raise RefusedError("line too long")
    if not line.strip():
        raise RefusedError(BLANK)
    if line.startswith(b"\xef\xbb\xbf"):
        raise RefusedError("byte order mark")
    if b"\\u0000" in line and re.search(rb"(?<!\\)(?:\\\\)*\\u0000", line):
        raise RefusedError("NUL in a text")


def _why_no_json(line: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError:
        return "not UTF-8"
    if _NO_NUMBER.search(line) and _spells_no_number(line):
        return "NaN or an infinite number"
    causes = {"depth": "nested too deeply", "surrogate": "half a surrogate pair", "infinity": "number out of range"}
    return next((reason for word, reason in causes.items() if word in str(error)), "not JSON")


def _spells_no_number(line: bytes) -> bool:
    """Whether a line would be JSON but for NaN or Infinity."""
    found = list[str]()
    try:
        json.loads(line, parse_constant=found.append)
    except (ValueError, RecursionError):
        return False
    return bool(found)


def count_keys(value: Any, depth: int) -> int:
    """Count the keys of all objects in `value`; lists of numbers are skipped.

    Raises:
        RefusedError: nested more than `depth` times.
    """
    if not depth:
        raise RefusedError("nested too deeply")
    if isinstance(value, dict):
        return len(value) + sum(count_keys(part, depth - 1) for part in value.values() if isinstance(part, dict | list))
    if value and isinstance(value[0], dict | list):
        return sum(count_keys(part, depth - 1) for part in value if isinstance(part, dict | list))
    return 0


def may_repeat_a_key(line: bytes, keys: int) -> bool:
    """Return False only if no key can be repeated: the line has as many quotes with a colon as there are keys."""
    shown = line.count(b'":')
    if b"\\" in line:
        shown -= line.count(b'\\":')
        if b'\\\\":' in line:  # a backslash before a key's last quote
            return True
    return shown != keys or (_has_space_before_a_colon(line) and _SPACED_KEY.search(line) is not None)


def _has_space_before_a_colon(line: bytes) -> bool:
    """Return False only if there is none; much faster than a pattern."""
    return b" :" in line or b"\t" in line or b"\r" in line or b"\n" in line


def _integer(digits: str) -> None:
    if len(digits) > 20 or int(digits) not in _INTEGERS:
        raise RefusedError("integer beyond 64 bits")


def refuse_repeated_keys(line: bytes) -> None:
    """Raise RefusedError if an object has a duplicate key."""
    json.loads(line, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RefusedError("key given twice")
    return found
