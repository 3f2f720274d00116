"""The answer of a chat completion in pieces, in an order that any dialect can write: thoughts, text, one call after another.

Only the first call is given as it comes. Engines mix fragments of several calls, so the others wait for the end; so do text and
thoughts that come after a call has begun. A thought that a text begins with is taken out of it where `with_thoughts` would write
it back as it was, so that a history that a client sends holds what was sampled.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.calls import Call, Calls
from clawpipe.data.wire.texts import GrowingText, joined_texts, texts_of
from clawpipe.data.wire.thoughts import CLOSING, FIELDS, OPENING


class Thought(NamedTuple):
    text: str


class Text(NamedTuple):
    """Text, and the log-probs of its tokens in the form of a chat completion, if it has them."""

    text: str
    logprobs: list[JsonObject]


class CallBegins(NamedTuple):
    id: str
    name: str


class Arguments(NamedTuple):
    """A part of the arguments of the call that began last."""

    text: str


Piece = Thought | Text | CallBegins | Arguments


class ChatPieces:
    """Reads the first choice of a whole answer or of chunks.

    Attributes:
        id, model: of the answer, as the engine says them.
        usage: of the chat; empty if the engine does not say it.
        prompt_tokens: number of the prompt's tokens, once it is known.
        finish_reason: as the engine says it.
        stop: the stop string that ended the answer, if the engine says it.
    """

    def __init__(self) -> None:
        self.id: str | None = None
        self.model: str | None = None
        self.usage: JsonObject = {}
        self.prompt_tokens = 0
        self.finish_reason: str | None = None
        self.stop: str | None = None
        self._beginning = Beginning()
        self._calls = Calls()
        self._given: int | None = None  # characters that were given of the first call's arguments; None before it began
        self._late: list[Piece] = []

    def add(self, body: JsonObject) -> list[Piece]:
        """Add a whole answer or one chunk. Raises UnheldError if it is not clear to which call a fragment belongs."""
        self._add_head(body)
        choices = body.get("choices")
        given = [one for one in choices if isinstance(one, dict) and not one.get("index")] if isinstance(choices, list) else []
        return [piece for choice in given for piece in self._of_choice(choice)]

    def end(self) -> list[Piece]:
        """Return what waited for the end. Raises UnheldError if a call has no name."""
        rest: list[Piece] = [*self._sorted(self._beginning.end())]
        for number, call in enumerate(self._calls.listed):
            if number or self._given is None:
                function = call.function()
                rest.append(CallBegins(call.id or f"call_{uuid.uuid4().hex[:24]}", function["name"]))
                self._given = 0
            rest += self._grown(call)
        return [*rest, *self._late]

    @property
    def has_calls(self) -> bool:
        return bool(self._calls.listed)

    def _add_head(self, body: JsonObject) -> None:
        self.id = self.id or (body["id"] if isinstance(body.get("id"), str) else None)
        self.model = self.model or (body["model"] if isinstance(body.get("model"), str) else None)
        self.usage = body["usage"] if isinstance(body.get("usage"), dict) else self.usage
        prompt, counted = body.get("prompt_token_ids"), self.usage.get("prompt_tokens")
        if isinstance(counted, int):
            self.prompt_tokens = counted
        elif isinstance(prompt, list):
            self.prompt_tokens = len(prompt)

    def _of_choice(self, choice: JsonObject) -> Iterator[Piece]:
        said = next((one for name in ("delta", "message") if isinstance(one := choice.get(name), dict)), {})
        self.finish_reason = choice["finish_reason"] if isinstance(choice.get("finish_reason"), str) else self.finish_reason
        self.stop = choice["stop_reason"] if isinstance(choice.get("stop_reason"), str) else self.stop
        thought = next((text for name in FIELDS if (text := _text(said, name))), "")
        yield from self._sorted([Thought(thought)] if thought else [])
        yield from self._sorted(self._beginning.add(_text(said, "content") + _text(said, "refusal"), _logprobs(choice)))
        calls = said.get("tool_calls")
        if isinstance(calls, list) and calls:
            yield from self._sorted(self._beginning.end())
            self._calls.add(calls)
            yield from self._first_call()

    def _sorted(self, pieces: list[Piece]) -> list[Piece]:
        """Return pieces that can be given now; the others wait for the end."""
        if not self.has_calls:
            return pieces
        self._late += pieces
        return []

    def _first_call(self) -> Iterator[Piece]:
        call = self._calls.listed[0]
        if self._given is None and call.id and call.name:
            self._given = 0
            yield CallBegins(call.id, call.name)
        if self._given is not None:
            yield from self._grown(call)

    def _grown(self, call: Call) -> list[Piece]:
        """Return what has come of the first call's arguments since."""
        text = _arguments(call)
        grown, self._given = text.after(self._given or 0), len(text)
        return [Arguments(grown)] if grown else []


class Beginning:
    """Takes out of a text the thought that it begins with: what its markers and the line breaks beside them enclose."""

    _open, _close = f"{OPENING}\n", f"\n{CLOSING}\n"

    def __init__(self) -> None:
        self._held, self._logprobs = "", list[JsonObject]()
        self._read = self._undecided

    def add(self, text: str, logprobs: list[JsonObject]) -> list[Piece]:
        """Return the pieces that a text goes on with, as far as they are known."""
        self._held += text
        self._logprobs += logprobs
        return self._read() if self._held else []

    def end(self) -> list[Piece]:
        """Return what was held back."""
        is_thought, text = self._read == self._thought, self._held
        self._read, self._held = self._plain, ""
        return ([Thought(text)] if is_thought else [self._text(text)]) if text else []

    def _text(self, text: str) -> Text:
        logprobs, self._logprobs = self._logprobs, []
        return Text(text, logprobs)

    def _plain(self) -> list[Piece]:
        text, self._held = self._held, ""
        return [self._text(text)] if text else []

    def _undecided(self) -> list[Piece]:
        if self._open.startswith(self._held) or (self._open + self._close).startswith(self._held):
            return []
        thinks = self._held.startswith(self._open) and not self._held.startswith(self._open + self._close)
        if not thinks:  # an empty thought could not be written back
            self._read = self._plain
            return self._plain()
        self._held, self._logprobs, self._read = self._held[len(self._open) :], [], self._thought
        return self._thought()

    def _thought(self) -> list[Piece]:
        end = self._held.find(self._close)
        if end < 0:
            kept = next((n for n in range(len(self._close) - 1, 0, -1) if self._held.endswith(self._close[:n])), 0)
            thought, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
            return [Thought(thought)] if thought else []
        thought, self._held, self._read = self._held[:end], self._held[end + len(self._close) :], self._plain
        self._logprobs = []
        return [*([Thought(thought)] if thought else []), *self._plain()]


def _text(said: JsonObject, name: str) -> str:
    """Return a text of a message, or of what it is made of."""
    value = said.get(name)
    return value if isinstance(value, str) else joined_texts("assistant", texts_of(value) or ())


def _arguments(call: Call) -> GrowingText:
    if isinstance(call.text, dict):
        return GrowingText(json.dumps(call.text, ensure_ascii=False))
    return call.text or GrowingText()


def _logprobs(choice: JsonObject) -> list[JsonObject]:
    given: Any = choice.get("logprobs")
    content = given.get("content") if isinstance(given, dict) else None
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
