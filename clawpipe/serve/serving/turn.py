"""A turn while it is sampled: the part of its text that can already be sent, and its calls at the end.

Two things hold text back: the beginning of a stop string, which would be cut off, and text that may become a tool call. So
the pieces of a streamed turn, joined, are the whole turn.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from clawpipe.core.basics.schemas import argument_error
from clawpipe.core.conversation.messages import ToolCall, ToolSpec, WrittenFormat
from clawpipe.data.wire.arguments import arguments_of
from clawpipe.data.wire.thoughts import split_thought
from clawpipe.model.engines.sampling import Token
from clawpipe.model.policy.calls import codec
from clawpipe.model.policy.formats.common import overlap
from clawpipe.serve.serving.tokens import TextStream

_CALL_ENDS = (")", "}", "]", ">")  # in any format


class Delta(NamedTuple):
    """A piece of a turn's content, and the tokens sampled since the last piece."""

    content: str
    tokens: list[Token]


class Outcome(NamedTuple):
    """Content and calls of a finished turn, and what is wrong with calls to strict tools."""

    content: str
    calls: tuple[ToolCall, ...]
    misfits: tuple[str, ...] = ()


class Rules(NamedTuple):
    """What a request says of calls: the tools that may be called, those whose schema is to be kept, and whether several calls may
    be made."""

    names: frozenset[str]
    strict: frozenset[str] = frozenset()
    several: bool = True


class Reading(Protocol):
    """Decides which part of a turn's text is content."""

    def settled(self, text: str) -> tuple[int, int]:
        """Return the span of `text`, the turn so far, that is content whatever follows."""
        ...

    def outcome(self, text: str) -> Outcome:
        """Return content and calls of a whole turn."""
        ...

    def is_over(self, text: str, fresh: str) -> bool:
        """Whether a turn ends here, since it may say nothing more; `fresh` is the last piece of `text`."""
        ...


class Plain:
    """Reading without tools: all text is content."""

    def settled(self, text: str) -> tuple[int, int]:
        return 0, len(text)

    def outcome(self, text: str) -> Outcome:
        return Outcome(text, ())

    def is_over(self, text: str, fresh: str) -> bool:
        return False


class WithTools:
    """Reading with tools: a turn whose calls are all well formed and of known tools is text and calls; else plain text.

    White space around the content is dropped.

    Args:
        format: the tool-call format.
        tools: tools in the request.
        turn: number of this assistant turn in its conversation, for the calls' ids.
        rules: which calls are such; without, those of all tools.
    """

    def __init__(self, format: WrittenFormat, tools: Sequence[ToolSpec], turn: int, rules: Rules | None = None) -> None:
        self._codec = codec(format, tools)
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._rules = rules or Rules(frozenset(self._schemas))
        self._turn = turn

    def settled(self, text: str) -> tuple[int, int]:
        return len(text) - len(text.lstrip()), len(text[: self._codec.content_end(text)].rstrip())

    def outcome(self, text: str) -> Outcome:
        content, calls = self._codec.parse(text, self._turn)
        if not all(not call.malformed and call.name in self._rules.names for call in calls):
            return Outcome(text.strip(), ())
        made = calls if self._rules.several else calls[:1]
        return Outcome(content, made, tuple(filter(None, map(self._misfit, made))))

    def is_over(self, text: str, fresh: str) -> bool:
        may_end_a_call = not self._rules.several and any(end in fresh for end in _CALL_ENDS)
        return may_end_a_call and bool(self.outcome(text).calls)

    def _misfit(self, call: ToolCall) -> str:
        """Return what is wrong with the arguments of a call to a strict tool."""
        if call.name not in self._rules.strict:
            return ""
        wrong = argument_error(self._schemas[call.name], arguments_of(call))
        return f"{call.id}: {wrong}" if wrong else ""


class Turn:
    """Collects the sampled tokens of a turn.

    Args:
        stream: decodes the tokens.
        stops: strings that end the turn; the first one and everything after it are cut off.
        reading: how the text is read.
        every: whether tokens that are no part of the text are sent, too: the end marker and those of a stop string.
    """

    def __init__(self, stream: TextStream, stops: Sequence[str], reading: Reading, every: bool = False) -> None:
        self._stream, self._stops, self._reading = stream, tuple(stops), reading
        self._every = every
        self._text = ""
        self._sent = 0  # start of the text that has not been sent
        self._content = ""  # content that has been sent
        self._starts: list[int] = []  # of the tokens' texts
        self._waiting: list[tuple[int, Token]] = []  # tokens that have not been sent, each with the start of its text
        self.stop: str | None = None  # the stop string that has ended the turn
        self._over = False  # whether a call that is the only one has ended it

    @property
    def stopped(self) -> bool:
        """Whether a stop string, or a call that is the only one, has ended the turn."""
        return self._over or self.stop is not None

    def push(self, token: Token) -> None:
        self._starts.append(len(self._text))
        self._waiting.append((len(self._text), token))
        self._append(self._stream.push(token.id))

    def push_end(self, token: Token) -> None:
        """Take the end marker."""
        if self._every:
            self._waiting.append((len(self._text), token))

    def settled(self) -> Delta:
        """Return what can be sent now and has not been sent before."""
        start, end = self._reading.settled(self._text[: len(self._text) - overlap(self._text, self._stops)])
        if end <= max(start, self._sent):
            return Delta("", [])
        content, self._sent = self._text[max(start, self._sent) : end], end
        self._content += content
        return Delta(content, self._release(end))

    def end(self) -> tuple[Delta, Outcome]:
        """End the turn: return what is left to send, and the whole turn."""
        if not self.stopped:
            self._append(self._stream.rest())
        outcome = self._reading.outcome(self._text)
        cut = self.stopped and not self._every
        last = len(self._text) if cut else sys.maxsize  # a token may have no text
        return Delta(outcome.content[len(self._content) :], self._release(last)), outcome

    def reasoning_tokens(self, outcome: Outcome) -> int | None:
        """Return how many tokens a thought at the turn's beginning has; None if the text writes thoughts in another way."""
        thought = split_thought(outcome.content)[0]
        return bisect_left(self._starts, len(thought)) if self._text.lstrip().startswith(thought) else None

    def _append(self, fresh: str) -> None:
        """Add text, up to the first stop string in it."""
        longest = max(map(len, self._stops), default=0)
        start = max(0, len(self._text) - longest)
        self._text += fresh
        places = [(place, stop) for stop in self._stops if (place := self._text.find(stop, start)) >= 0]
        if places:
            place, self.stop = min(places)
            self._text = self._text[:place]
        elif fresh:
            self._over = self._reading.is_over(self._text, fresh)

    def _release(self, end: int) -> list[Token]:
        """Return the waiting tokens whose text begins before `end`, and remove them."""
        count = sum(start < end for start, _ in self._waiting)
        released, self._waiting = self._waiting[:count], self._waiting[count:]
        return [token for _, token in released]
