"""Records of any other form, by a mapping: which of their fields is what clawpipe calls messages, reward and so on.

    --map messages=data.turns --map messages.role=speaker --map messages.content=text --map reward=result.score

A path names fields one inside the other, and places in lists by number; a text that spells JSON is entered as well. What a path
leads to moves to the target, and all other fields stay as they are; then the record is read as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clawpipe.errors import ConfigError
from clawpipe.importers.strict_json import RefusedError
from clawpipe.importers.toolcalls import parsed

_SAID = ("messages", "conversations", "prompt", "completion", "chosen", "rejected", "instruction", "output")  # each is needed
_NUMBERS = ("reward", "score")
_BESIDE = (*_NUMBERS, "success", "label", "system", "tools", "input", "session_id", "user", "model")
_OF_MESSAGES = ("messages.role", "messages.content")
TARGETS = (*_SAID, *_BESIDE, *_OF_MESSAGES)

Path = tuple[str, ...]


@dataclass(frozen=True)
class Mapping:
    """Paths by their target. `fields` are those of messages, by what clawpipe calls them."""

    paths: tuple[tuple[str, Path], ...] = ()
    fields: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.paths or self.fields)

    def applied(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record with its fields where they are looked for.

        Raises:
            RefusedError: nothing is where what was said should be, or a reward is no number.
        """
        left: dict[str, Any] = dict(record)
        found: dict[str, Any] = {}
        for target, path in self.paths:
            value, left = _taken(left, path)
            if value is None and target in _SAID:
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
    """The mapping that words of the form TARGET=PATH are.

    Raises:
        ConfigError: a word is none, or names no known target.
    """
    pairs = [word.partition("=") for word in given]
    for word, (target, sign, path) in zip(given, pairs, strict=True):
        if not sign or target not in TARGETS or not path or not all(path.split(".")):
            raise ConfigError(f"{word!r} is no mapping", "--map", f"TARGET=path.to.field, with a target of {', '.join(TARGETS)}")
    fields = tuple((target.partition(".")[2], path) for target, _, path in pairs if target in _OF_MESSAGES)
    return Mapping(tuple((target, tuple(path.split("."))) for target, _, path in pairs if target not in _OF_MESSAGES), fields)


def _taken(value: Any, path: Path) -> tuple[Any, Any]:
    """What is at the path, and the value without it."""
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
        return float(value)
    except (TypeError, ValueError):
        raise RefusedError(f"{target}: not a number") from None
