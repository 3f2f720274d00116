"""Map the fields of records in any other form to the names that clawpipe knows: messages, reward and so on.

    --map messages=data.turns --map messages.role=speaker --map messages.content=text --map reward=result.score

A path names nested fields, and list elements by number or by their `name`; it also leads into JSON texts. The value at a path moves
to the target, and all other fields stay; then the record is read like any other.

    --map each=samples --map messages=messages --map model=around.eval.model

`each` leads to a list in the record whose elements are records of their own: the other paths begin there, or at `around`, which is
the record without the list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.sources.lines import Line
from clawpipe.data.importers.strict_json import Reasons, RefusedError, parse_object
from clawpipe.data.wire.arguments import parsed
from clawpipe.errors import ConfigError

_CONTENT = (
    "messages",
    "conversations",
    "prompt",
    "completion",
    "chosen",
    "rejected",
    "instruction",
    "output",
)  # required
_NUMBERS = ("reward", "score")
_BESIDE = (*_NUMBERS, "success", "label", "system", "tools", "input", "session_id", "user", "model")
_OF_MESSAGES = ("messages.role", "messages.content")
EACH, AROUND = "each", "around"
TARGETS = (*_CONTENT, *_BESIDE, *_OF_MESSAGES, EACH)

Path = tuple[str, ...]


@dataclass(frozen=True)
class Mapping:
    """Paths by their target.

    Attributes:
        fields: the fields of messages: (clawpipe's name, the record's name).
        each: the path to a list of records inside a record; empty if each record stands for itself.
    """

    paths: tuple[tuple[str, Path], ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    each: Path = ()

    def __bool__(self) -> bool:
        return bool(self.paths or self.fields or self.each)

    def elements(self, line: Line) -> list[Line]:
        """Return a line for each record inside the record on a line; the line itself where each record stands for itself.

        Raises:
            RefusedError: the line is no record, or has no list of objects there.
        """
        if not self.each or not line.whole or line.fault:
            return [line]
        record = parse_object(line.data)
        found, left = _taken(record, self.each)
        if not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
            raise RefusedError(f"{'.'.join(self.each)}: no list of objects")
        around = {AROUND: left} if any(path[0] == AROUND for _, path in self.paths) else {}
        return [
            replace(line, offset=line.offset + place, data=orjson.dumps(one | around)) for place, one in enumerate(found)
        ]  # each has a name of its own, by its offset

    @property
    def says_what_was_said(self) -> bool:
        """Whether it leads to a conversation, and not only to what is beside one."""
        return any(target in _CONTENT for target, _ in self.paths)

    def applied(self, record: JsonObject) -> JsonObject:
        """Return the record with the mapped fields under clawpipe's names.

        Raises:
            RefusedError: required fields are missing, or a reward is not a number; with all that is wrong.
        """
        left: JsonObject = dict(record)
        found: JsonObject = {}
        reasons = Reasons()
        for target, path in self.paths:
            value, left = _taken(left, path)
            if value is None and target in _CONTENT:
                reasons.add(f"{'.'.join(path)}: missing")
            with reasons:
                found |= {} if value is None else {target: _number(value, target) if target in _NUMBERS else value}
        reasons.raise_all()
        mapped = left | found
        if self.fields and isinstance(mapped.get("messages"), list):
            mapped["messages"] = [self._renamed(part) for part in mapped["messages"]]
        return mapped

    def _renamed(self, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        names = {theirs: ours for ours, theirs in self.fields if theirs in message}
        return {names.get(name, name): value for name, value in message.items() if name in names or name not in names.values()}


def read_mapping(given: Sequence[str]) -> Mapping:
    """Read a mapping from words of the form TARGET=PATH.

    Raises:
        ConfigError: a word has another form, or an unknown target.
    """
    pairs = [word.partition("=") for word in given]
    for word, (target, sign, path) in zip(given, pairs, strict=True):
        if not sign or target not in TARGETS or not path or not all(path.split(".")):
            raise ConfigError(f"{word!r} is no mapping", "--map", f"TARGET=path.to.field, with a target of {', '.join(TARGETS)}")
    fields = tuple((target.partition(".")[2], path) for target, _, path in pairs if target in _OF_MESSAGES)
    paths = tuple((target, tuple(path.split("."))) for target, _, path in pairs if target not in (*_OF_MESSAGES, EACH))
    each = next((tuple(path.split(".")) for target, _, path in pairs if target == EACH), ())
    return Mapping(paths, fields, each)


def _taken(value: Any, path: Path) -> tuple[Any, Any]:
    """Return the value at the path, and the record without it."""
    inner = parsed(value) if isinstance(value, str) else value
    name, rest = path[0], path[1:]
    if isinstance(inner, list):
        found = _element(inner, name)
        return (_taken(found, rest)[0] if rest else found), value
    if not isinstance(inner, dict) or name not in inner:
        return None, value
    others = {other: part for other, part in inner.items() if other != name}
    if not rest:
        return inner[name], others
    found, left = _taken(inner[name], rest)
    return found, others if left in ({}, None) else others | {name: left}


def _element(listed: list[Any], name: str) -> Any:
    """Return the element of a list by its number, or the object with this name; None if there is none."""
    if name.isdecimal():
        return listed[int(name)] if int(name) < len(listed) else None
    return next((one for one in listed if isinstance(one, dict) and name in (one.get("name"), one.get("assessment_name"))), None)


def _number(value: Any, target: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RefusedError(f"{target}: not a number") from None
    if not math.isfinite(number):
        raise RefusedError(f"{target}: not a finite number")
    return number
