"""The fields of a record, read with a check of their types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.toolcalls import tools_on_offer
from clawpipe.data.wire.arguments import parsed


class Fields:
    """The fields of a record, taken out one by one with a check of their types; `rest` holds the others."""

    def __init__(self, record: Mapping[str, Any], where: str = "") -> None:
        self._left, self._where = dict(record), where

    def __bool__(self) -> bool:
        return bool(self._left)

    def take(self, name: str, *kinds: type, default: Any = ...) -> Any:
        """Remove and return the value of `name`, which has one of the types `kinds`; null counts as absent.

        Raises:
            RefusedError: the field is missing and has no default, or has another type.
        """
        value = self._left.pop(name, None)
        if value is None:
            if default is ...:
                raise RefusedError(f"{self._where}{name}: missing")
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise RefusedError(f"{self._where}{name}: not {' or '.join(kind.__name__ for kind in kinds)}")
        return value

    def take_number(self, name: str) -> int | float | None:
        """Take a number, also one that a text spells, as settings in traces do; a value of another kind stays, and is None."""
        value = self._left.get(name)
        try:
            number = float(value) if isinstance(value, str) else value
        except ValueError:
            return None
        if isinstance(number, bool) or not isinstance(number, int | float) or not -inf < number < inf:
            return None
        del self._left[name]
        return number

    def says_null(self, name: str) -> bool:
        """Whether the record has this field, and null in it."""
        return name in self._left and self._left[name] is None

    def peek(self, name: str) -> Any:
        """Return the value of `name` without removing it; None if it is absent or was taken."""
        return self._left.get(name)

    @property
    def rest(self) -> JsonObject:
        return {name: value for name, value in self._left.items() if value is not None}


def take_tools(fields: Fields, names: Sequence[str] = ("tools",)) -> str | None:
    """Take the tools on offer from the first of these fields that holds any, as a JSON array. A text that is not JSON stays.

    Raises:
        RefusedError: the field is neither a list nor a text.
    """
    for name in names:
        value = fields.peek(name)
        if isinstance(value, str) and value.strip() and parsed(value) is None:
            continue
        if tools := tools_on_offer(fields.take(name, list, str, default=None)):
            return tools
    return None


def as_list(value: Any, where: str) -> Iterator[JsonObject]:
    """Yield the objects of a JSON array.

    Raises:
        RefusedError: an element is not an object.
    """
    for part in value:
        if not isinstance(part, dict):
            raise RefusedError(f"{where}[]: not an object")
        yield part
