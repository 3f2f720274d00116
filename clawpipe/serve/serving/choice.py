"""One answer while it is sampled: its row in the engine's batch, and the text that can be sent after each token."""

from __future__ import annotations

from typing import NamedTuple

from clawpipe.core.conversation.messages import ToolCall
from clawpipe.model.engines.rows import Row
from clawpipe.model.engines.sampling import Token
from clawpipe.serve.serving.turn import Delta, Outcome, Turn


class Ending(NamedTuple):
    """The end of a turn.

    Attributes:
        tokens: how many were sampled, including the end marker.
        stop: the stop string that ended it.
        misfits: what is wrong with calls to strict tools.
        cached: how many tokens of the prompt had been computed before.
        reasoning: how many of the tokens are a thought's; None if that is not known.
        constrained: whether a grammar has decided which tokens could be drawn.
    """

    calls: tuple[ToolCall, ...]
    finish_reason: str
    tokens: int
    stop: str | None = None
    misfits: tuple[str, ...] = ()
    cached: int = 0
    reasoning: int | None = 0
    constrained: bool = False


class Choice:
    """An answer; used from the engine's thread."""

    def __init__(self, row: Row, turn: Turn) -> None:
        self.row, self._turn = row, turn

    def take(self, token: Token) -> list[Delta | Ending]:
        """Return the text that can be sent after the row's last token; an `Ending` is the last item of a turn."""
        marked = token.id in self.row.sampling.stop_ids
        if marked:
            self._turn.push_end(token)
        else:
            self._turn.push(token)
        if not (marked or self._turn.stopped or self.row.ended):
            return [self._turn.settled()]
        rest, outcome = self._turn.end()
        reason = "stop" if marked or self._turn.stopped else "length"
        return [rest, self._ending(outcome, "tool_calls" if outcome.calls and reason == "stop" else reason)]

    def _ending(self, outcome: Outcome, reason: str) -> Ending:
        row, reasoning = self.row, self._turn.reasoning_tokens(outcome)
        constrained = row.constraint is not None
        return Ending(outcome.calls, reason, len(row.turn), self._turn.stop, outcome.misfits, row.cached, reasoning, constrained)
