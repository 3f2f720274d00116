"""Put streamed tool calls together from their fragments.

Engines say in several ways to which call a fragment belongs: by index and a first id (OpenAI, vLLM), by id with one index for all
(Gemini), with a new id for each fragment (older vLLM), or not at all, where each call comes whole (older Ollama). Some repeat the
name in each fragment. What these rules cannot tell apart is not guessed: `UnheldError` says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.texts import GrowingText

_KINDS = {"function": "arguments", "custom": "input"}  # kinds of calls, and the field of each that comes in fragments
_OWN = ("index", "id", *_KINDS)
_CLOSERS = frozenset("} \t\r\n")  # with which the text of an object may end


class UnheldError(Exception):
    """An answer that no message can hold. `args[0]` says why, in one of a few wordings."""


@dataclass(eq=False)
class Call:
    """A call, as far as it has come. `given` is its arguments or input: a text, or an object where an engine sends it whole."""

    id: str | None = None
    index: int | None = None
    kind: str | None = None
    name: str | None = None
    text: GrowingText | JsonObject | None = None
    inner: JsonObject = field(default_factory=dict)  # further fields of the function
    outer: JsonObject = field(default_factory=dict)  # further fields of the call

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are an object. An input that is free text is never known to be whole."""
        text = self.text
        if text is None or isinstance(text, dict):
            return text is not None
        return self.kind != "custom" and text.after(len(text) - 1) in _CLOSERS and _is_object(str(text))

    @property
    def given(self) -> str | JsonObject | None:
        return str(self.text) if isinstance(self.text, GrowingText) else self.text

    def says(self, text: Any) -> bool:
        """Whether its arguments are these; lengths are compared first, because a text may be long and grow for long."""
        is_as_long = not isinstance(self.text, GrowingText) or (isinstance(text, str) and len(text) == len(self.text))
        return is_as_long and self.given == text

    def take(self, fragment: Fragment) -> None:
        """Add a fragment. Raises UnheldError if it contradicts what came before."""
        self.id = self.id or fragment.id
        self.index = fragment.index if self.index is None else self.index
        if fragment.kind and self.kind not in (None, fragment.kind):
            raise UnheldError("a call that changes its kind")
        if fragment.name and self.name not in (None, fragment.name):
            raise UnheldError("a call that changes its name")
        self.kind, self.name = self.kind or fragment.kind, self.name or fragment.name
        self._add_text(fragment.text)
        self.inner |= fragment.inner
        self.outer |= fragment.outer

    def _add_text(self, text: Any) -> None:
        if not self.text and isinstance(text, str | dict):
            self.text = GrowingText(text) if isinstance(text, str) else text
        elif text and self.says(text) and self.is_whole:
            return  # the call comes once more
        elif isinstance(self.text, GrowingText) and isinstance(text, str):
            self.text.add(text)
        elif text:
            raise UnheldError("arguments that are neither one text nor one object")

    def function(self) -> JsonObject:
        """Return name and arguments. Raises UnheldError if no name came."""
        if not self.name:
            raise UnheldError("a call without a name")
        return {"name": self.name} | ({} if self.text is None else {_KINDS[self.kind or "function"]: self.given}) | self.inner

    def written(self) -> JsonObject:
        """Return the call as a whole answer has it. Raises UnheldError if no name came."""
        kind = self.kind or "function"
        return ({"id": self.id} if self.id else {}) | {"type": kind} | self.outer | {kind: self.function()}


@dataclass(frozen=True)
class Fragment:
    """What one delta says of one call."""

    id: str | None
    index: int | None
    kind: str | None
    name: str | None
    text: Any
    inner: JsonObject
    outer: JsonObject

    @classmethod
    def of(cls, given: Any) -> Fragment:
        """Read a fragment. Raises UnheldError if it is no object."""
        if not isinstance(given, dict):
            raise UnheldError("a call that is no object")
        call_id, index = given.get("id"), given.get("index")
        kind = next((kind for kind in _KINDS if isinstance(given.get(kind), dict)), None)
        inner = given[kind] if kind else {}
        name, text = inner.get("name"), inner.get(_KINDS[kind]) if kind else None
        return cls(
            call_id if isinstance(call_id, str) and call_id else None,
            index if type(index) is int else None,
            kind,
            name if isinstance(name, str) and name else None,
            text,
            {key: value for key, value in inner.items() if key not in ("name", *_KINDS.values()) and value is not None},
            {key: value for key, value in given.items() if key not in _OWN and value is not None},
        )

    @property
    def has_text(self) -> bool:
        return bool(self.text.strip()) if isinstance(self.text, str) else self.text is not None

    def begins_after(self, before: Call) -> bool:
        """Whether it begins another call than the one before it at its place.

        Raises:
            UnheldError: its name is another one, and the call before is not known to be over.
        """
        if self.id and before.id:
            return bool(self.name) or self.text is None or (self.has_text and before.is_whole)
        if not self.name or not before.name:
            return False
        if self.name == before.name:
            return self.has_text and before.is_whole
        if self.id or before.is_whole or (self.index is None and not before.text):
            return True
        raise UnheldError("a call that changes its name")

    def repeats(self, known: Call) -> bool:
        """Whether it belongs to the call with its id, rather than beginning another one under the same id."""
        if not self.name:
            return True
        moved = None not in (self.index, known.index) and self.index != known.index
        return not moved and not (self.has_text and not known.says(self.text) and known.is_whole)


class Calls:
    """The calls of one answer, in the order in which they began: `listed`."""

    def __init__(self) -> None:
        self.listed: list[Call] = []
        self._by_id: dict[str, Call] = {}
        self._by_index: dict[int, Call] = {}

    def add(self, given: Sequence[Any]) -> None:
        """Add the fragments of one delta. Raises UnheldError if it is not clear to which call one belongs."""
        taken: list[Call] = []  # two fragments of one delta that nothing numbers are of two calls
        for one in given:
            fragment = Fragment.of(one)
            call = self._of(fragment, taken)
            call.take(fragment)
            taken.append(call)
            if fragment.id:
                self._by_id[fragment.id] = call
            if fragment.index is not None:
                self._by_index[fragment.index] = call

    def written(self) -> list[JsonObject]:
        """Return the calls as a whole answer has them. Raises UnheldError if one has no name."""
        return [call.written() for call in self.listed]

    def _of(self, fragment: Fragment, taken: Sequence[Call]) -> Call:
        at_index = self._by_index.get(fragment.index if fragment.index is not None else -1)
        known = at_index if at_index and fragment.id and at_index.id == fragment.id else self._by_id.get(fragment.id or "")
        if known and fragment.repeats(known):
            return known
        last = self.listed[-1] if self.listed else None
        before = last if fragment.index is None else self._by_index.get(fragment.index)
        if known or before is None or self._is_next(fragment, before, taken):
            self.listed.append(Call())
            return self.listed[-1]
        return before

    def _is_next(self, fragment: Fragment, before: Call, taken: Sequence[Call]) -> bool:
        if before not in taken or fragment.id:
            return fragment.begins_after(before)
        if not fragment.name and fragment.index is None:
            raise UnheldError("a fragment of no known call")
        return bool(fragment.name)


def _is_object(text: str) -> bool:
    if text.lstrip()[:1] != "{" or text.rstrip()[-1:] != "}":
        return False
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
