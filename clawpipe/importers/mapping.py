"""Map the fields of records in any other form to the names that clawpipe knows: messages, reward and so on.

    --map messages=data.turns --map messages.role=speaker --map messages.content=text --map reward=result.score

A path names nested fields, and list elements by number; it also leads into JSON texts. The value at a path moves to the target, and
all other fields stay; then the record is read like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clawpipe.errors import ConfigError
from clawpipe.importers.strict_json import RefusedError
from clawpipe.json_types import JsonObject
from clawpipe.wire.arguments import parsed

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
TARGETS = (*_CONTENT, *_BESIDE, *_OF_MESSAGES)

Path = tuple[str, ...]


@dataclass(frozen=True)
class Mapping:
    """Paths by their target. `fields` holds the fields of messages: (clawpipe's name, the record's name)."""

    paths: tuple[tuple[str, Path], ...] = ()
    fields: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.paths or self.fields)

    @property
    def says_what_was_said(self) -> bool:
        """Whether it leads to a conversation, and not only to what is beside one."""
        return any(target in _CONTENT for target, _ in self.paths)

    def applied(self, record: JsonObject) -> JsonObject:
        """Return the record with the mapped fields under clawpipe's names.

        Raises:
            RefusedError: a required field is missing, or a reward is not a number.
        """
        left: JsonObject = dict(record)
        found: JsonObject = {}
        for target, path in self.paths:
            value, left = _taken(left, path)
            if value is None and target in _CONTENT:
                raise RefusedError(f"{'.'.join(path)}: missing")
            if value is not None:
                found[target] = _number(value, target) if target in _NUMBERS else value
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
    return Mapping(tuple((target, tuple(path.split("."))) for target, _, path in pairs if target not in _OF_MESSAGES), fields)


def _taken(value: Any, path: Path) -> tuple[Any, Any]:
    """Return the value at the path, and the record without it."""
    inner = parsed(value) if isinstance(value, str) else value
    name, rest = path[0], path[1:]
    if isinstance(inner, list):
        found = inner[int(name)] if name.isdecimal() and int(name) < len(inner) else None
        return (_taken(found, rest)[0] if rest else found), value
    if not isinstance(inner, dict) or name not in inner:
        return None, value
    others = {other: part for other, part in inner.items() if other != name}
    if not rest:
        return inner[name], others
    found, left = _taken(inner[name], rest)
    return found, others if left in ({}, None) else others | {name: left}


def _number(value: Any, target: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RefusedError(f"{target}: not a number") from None
    if not math.isfinite(number):
        raise RefusedError(f"{target}: not a finite number")
    return number
