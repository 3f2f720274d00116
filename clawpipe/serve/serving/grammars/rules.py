"""Build a grammar in llguidance's dialect of Lark, rule by rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.model.policy.formats.common import Marker

# One space or none after a comma and a colon, as models write JSON on one line; with any white space allowed, a model may write
# spaces until its answer is full. Of `oneOf` that one alternative fits is kept, that no other fits is not.
_OPTIONS: JsonObject = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?", "coerce_one_of": True}
_HOLDERS = ("properties", "$defs", "definitions", "patternProperties")  # keywords whose values are schemas by name


class UnkeptError(ValueError):
    """A schema that no answer can be held to. `args[0]` says why and names the keyword."""


class Rules:
    """The rules of one grammar.

    Args:
        token_of: returns the id of a marker, or None if it is no token of the model.
    """

    def __init__(self, token_of: Callable[[str], int | None]) -> None:
        self._token_of, self._bodies = token_of, list[str]()

    def add(self, body: str) -> str:
        """Add a rule and return its name."""
        name = self.reserve()
        self.define(name, body)
        return name

    def reserve(self) -> str:
        """Return the name of a rule that is defined later, since it refers to itself."""
        self._bodies.append("")
        return f"r{len(self._bodies) - 1}"

    def define(self, name: str, body: str) -> None:
        self._bodies[int(name[1:])] = f"{name}: {body}"

    def lazy(self, pattern: str) -> str:
        """Add a rule of the shortest text that matches a pattern, which says how the text ends, and return its name."""
        name = self.reserve()
        self._bodies[int(name[1:])] = f"{name}[lazy]: /{pattern}/"
        return name

    def written(self, *pieces: str) -> str:
        """Return an expression of fixed text; a `Marker` is its token."""
        return " ".join(self._piece(piece) for piece in pieces)

    def json(self, schema: JsonObject) -> str:
        """Add a rule of a JSON value and return its name."""
        return self.add(f"%json {json.dumps(schema | {'x-guidance': _OPTIONS})}")

    def members(self, entries: Sequence[tuple[str, bool]], gap: str = '", "') -> str:
        """Add rules of a list whose entries have an order and may be missing; return the name of the first.

        Args:
            entries: expression of each, and whether it must be there.
            gap: expression of what stands between two.
        """
        first = more = self.add('""')
        for entry, required in reversed(entries):
            begins, goes_on = f"{entry} {more}", f"{gap} {entry}"
            first = self.add(begins if required else f"{begins} | {first}")
            more = self.add(f"{goes_on} {more}" if required else f"({goes_on})? {more}")
        return first

    def grammar(self, start: str) -> str:
        """Return the text of the grammar whose answers are of the expression `start`."""
        return "\n".join([f"start: {start}", *self._bodies])

    def _piece(self, piece: str) -> str:
        token = self._token_of(piece) if isinstance(piece, Marker) else None
        return quoted(piece) if token is None else f"<[{token}]>"


def quoted(text: str) -> str:
    """Return a literal."""
    return json.dumps(text, ensure_ascii=False)


def choice(alternatives: Sequence[str]) -> str:
    """Return an expression of one of several."""
    return f"({' | '.join(alternatives)})"


def closed(schema: Any) -> Any:
    """Return a schema whose objects have the properties that it names and no others, unless it says what others may be.

    A schema stays open where `allOf` puts an object together from several parts.
    """
    return schema if '"allOf"' in json.dumps(schema) else _closed(schema)


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    parts = {name: _closed_part(name, value) for name, value in schema.items()}
    is_open = "properties" in schema and not schema.keys() & {"additionalProperties", "patternProperties", "unevaluatedProperties"}
    return parts | ({"additionalProperties": False} if is_open else {})


def _closed_part(keyword: str, value: Any) -> Any:
    if keyword in _HOLDERS and isinstance(value, dict):
        return {name: _closed(one) for name, one in value.items()}
    if keyword in ("anyOf", "oneOf", "prefixItems") and isinstance(value, list):
        return [_closed(one) for one in value]
    return _closed(value) if keyword in ("items", "additionalProperties") else value
