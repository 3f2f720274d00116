"""Detect faults of a turn without a judge: failed calls, repeated calls, and claims of actions without a call."""

from __future__ import annotations

import re

from clawpipe.judging.exchanges import Exchange
from clawpipe.messages import ToolCall
from clawpipe.wire.arguments import comparable

FAILED, REPEATED, CLAIMED = "a call failed", "a call was made before", "claims what was not done"

_CLAIM = re.compile(
    r"\bI(?:'ve|\u2019ve| have)? (?:just |now |already )?(?:successfully )?"
    r"(?:added|booked|cancell?ed|changed|created|deleted|deployed|ordered|paid|removed|reserved|saved|scheduled|sent|updated)\b",
    re.IGNORECASE,
)


def fault_of(turn: Exchange, *, offered: bool) -> str:
    """Return the fault of a turn; "" if it has none of these faults.

    Args:
        offered: whether tools were on offer, so that a claimed action needs a call. Only claims in English are detected.
    """
    if any(call.malformed for call in turn.reply.tool_calls) or any(turn.failures):
        return FAILED
    if set(map(comparable, turn.reply.tool_calls)) & {comparable(call) for call in _succeeded(turn)}:
        return REPEATED
    called = turn.reply.tool_calls or _calls_that_may_have_worked(turn)
    return CLAIMED if offered and not called and _CLAIM.search(turn.reply.content) else ""


def _calls_that_may_have_worked(turn: Exchange) -> int:
    """Return how many calls were made before, without those whose result is known to be a failure."""
    return sum(len(message.tool_calls) for message in turn.earlier) - len(turn.earlier_failures)


def _succeeded(turn: Exchange) -> list[ToolCall]:
    """Return the calls that were made before and did not fail: to make a failed one again is no fault by itself."""
    made: list[ToolCall] = []
    waiting: list[ToolCall] = []
    for place, message in enumerate(turn.earlier):
        if message.role == "assistant":
            waiting = list(message.tool_calls)
        elif message.role == "tool" and waiting:
            call = waiting.pop(0)
            made += [] if place in turn.earlier_failures else [call]
    return made
