"""One answer while it is sampled: its row in the engine's batch, and the text that can be sent after each token."""

from __future__ import annotations

from typing import NamedTuple

from clawpipe.engines.rows import Row
from clawpipe.engines.sampling import Token
from clawpipe.messages import ToolCall
from clawpipe.serving.turn import Delta, Turn


class Ending(NamedTuple):
    """The end of a turn. `tokens` counts every sampled token, including the end marker. `stop` is the stop string that ended it."""

    calls: tuple[ToolCall, ...]
    finish_reason: str
    tokens: int
    stop: str | None = None


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
        reason = "tool_calls" if outcome.calls and reason == "stop" else reason
        return [rest, Ending(outcome.calls, reason, len(self.row.turn), self._turn.stop)]
