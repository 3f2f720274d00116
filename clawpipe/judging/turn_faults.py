"""Detect faults of a turn without a judge: failed calls, repeated calls, and claims of actions without a call."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clawpipe.judging.exchanges import Exchange
from clawpipe.messages import Message, ToolCall

FAILED, REPEATED, CLAIMED = "a call failed", "a call was made before", "claims what was not done"

_FAILURE = re.compile(r"\s*(?:error\b|traceback\b|exception\b)", re.IGNORECASE)
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
    if any(call.malformed for call in turn.reply.tool_calls) or any(_FAILURE.match(result.content) for result in turn.results):
        return FAILED
    if set(map(_call, turn.reply.tool_calls)) & {_call(call) for call in _succeeded(turn.earlier)}:
        return REPEATED
    called = turn.reply.tool_calls or _calls_that_may_have_worked(turn.earlier)
    return CLAIMED if offered and not called and _CLAIM.search(turn.reply.content) else ""


def _call(call: ToolCall) -> tuple[str, str]:
    return call.name, call.arguments


def _calls_that_may_have_worked(messages: Sequence[Message]) -> int:
    """Return how many calls were made before, without those whose result is known to be a failure."""
    made = sum(len(message.tool_calls) for message in messages)
    return made - sum(message.role == "tool" and _FAILURE.match(message.content) is not None for message in messages)


def _succeeded(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls that were made before and did not fail: to make a failed one again is no fault by itself."""
    made: list[ToolCall] = []
    waiting: list[ToolCall] = []
    for message in messages:
        if message.role == "assistant":
            waiting = list(message.tool_calls)
        elif message.role == "tool" and waiting:
            call = waiting.pop(0)
            made += [] if _FAILURE.match(message.content) else [call]
    return made
