"""Conversations of records that wrap the calls of their trace, such as an agent's span: these repeat the calls that are recorded.

A span ends after the calls within it, and programs write each on a line of its own, or into files of their own. So which calls are
recorded is known when all files have been read. A record with a judgement of its own stays: its calls have none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from clawpipe.data.importers.read.checked import columns_like_outcomes
from clawpipe.data.importers.read.reading import Reading, Record
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.sources.lines import Line
from clawpipe.data.importers.strict_json import RefusedError

LEFT_OUT = "answers of agents, chains or traces, beside those of their calls"  # on a line that holds other calls, too


def is_held(part: Any) -> bool:
    """Whether a part of a line is the conversation of a span that may repeat calls on other lines."""
    return isinstance(part, Conversation) and part.wraps and part.trace is not None and not part.judgements


def called_in(part: Any) -> str | None:
    """Return the trace in which a part of a line is a call; None for any other part."""
    return part.trace if isinstance(part, Conversation) and not part.wraps else None


@dataclass(frozen=True)
class _Held:
    """Conversations of spans on one line; `whole`: the line holds nothing else."""

    line: Line
    conversations: Sequence[Conversation]
    whole: bool


class Wrapping:
    """Holds conversations of such spans until all files have been read. `check` is a further check of each."""

    def __init__(self, reading: Reading, check: Callable[[Conversation], None] | None) -> None:
        self._reading, self._check = reading, check
        self._held = list[_Held]()

    def add(self, conversations: Sequence[Conversation], line: Line, whole: bool) -> None:
        if conversations:
            self._held.append(_Held(line, conversations, whole))

    @property
    def traces(self) -> set[str]:
        """The traces of the spans that are held."""
        return {one.trace for held in self._held for one in held.conversations if one.trace}

    def released(self, called: Collection[str]) -> Iterator[Record]:
        """Yield the conversations of spans without recorded calls. A line of which nothing is left is refused.

        Args:
            called: the traces of recorded calls.
        """
        held, self._held = self._held, []
        for one in held:
            kept = [conversation for conversation in one.conversations if conversation.trace not in called]
            try:
                yield from self._checked(kept, one)
            except (RefusedError, RecursionError) as error:
                yield self._reading.refuse(one.line, error)

    def _checked(self, kept: Sequence[Conversation], held: _Held) -> list[Conversation]:
        """Return the conversations that are left of a line, and count the others. Raises RefusedError: none is left."""
        if not kept and held.whole:
            raise RefusedError("a record of an agent, a chain or a trace, beside those of its calls")
        for one in kept if self._check else ():
            self._check(one)  # type: ignore[misc]
        gone = sum(one.turns["main"] for one in held.conversations if one not in kept)
        self._reading.silent += {LEFT_OUT: gone} if gone else {}
        self._reading.outcomes.update(name for one in kept[:1] for name in columns_like_outcomes(one))
        return [self._reading.silenced(one) for one in kept]
