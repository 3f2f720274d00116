"""Notice what may be a fault of a turn: failed calls, repeated calls, and claims of actions without a call.

These are signs and no verdicts: a call that failed may have been the right one to make, and a claim may be a draft for the
user. `prm` shows them to its voters; of `rules` they decide only where the user has not reacted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clawpipe.core.conversation.messages import ToolCall
from clawpipe.data.wire.arguments import comparable
from clawpipe.play.judging.exchanges import Exchange

FAILED, REPEATED, CLAIMED = "a call failed", "a call was made before, with the same result", "claims what was not done"

_DONE = (
    "added|booked|cancell?ed|changed|created|deleted|deployed|fixed|installed|moved|ordered|paid|posted|removed|renamed|reserved|saved|"
    "scheduled|sent|submitted|updated|uploaded"
)
_CLAIM = re.compile(
    rf"(?:^|[.!?:]\s+|\band\s+|,\s+)(?:done[,!.]?\s+|okay[,.]?\s+|sure[,!.]?\s+)?"
    rf"(?:I(?:'ve| have)? (?:just |now |already )?(?:successfully )?(?:{_DONE})\b"
    rf"|your [\w ]{{1,40}} (?:has|have) been (?:successfully )?(?:{_DONE})\b)",
    re.IGNORECASE,
)
_QUOTED = re.compile('```.*?```|`[^`\n]*`|"[^"\n]*"|\u201c[^\u201d\n]*\u201d|^>.*$', re.DOTALL | re.MULTILINE)
_MOST = 4000  # characters of a reply in which claims are looked for


def signs_of_fault(turn: Exchange, *, offered: bool) -> tuple[str, ...]:
    """Return what may be a fault of a turn.

    Args:
        offered: whether tools were on offer, so that a claimed action needs a call. Only claims in English are noticed.
    """
    found = {FAILED: has_failed_call(turn), REPEATED: repeats_a_call(turn), CLAIMED: offered and _claims(turn)}
    return tuple(sign for sign, shows in found.items() if shows)


def has_failed_call(turn: Exchange) -> bool:
    """Whether a call of the turn is malformed, or its result is a failure."""
    return any(call.malformed for call in turn.reply.tool_calls) or any(turn.failures)


def repeats_a_call(turn: Exchange) -> bool:
    """Whether the turn makes a call again that had succeeded in this exchange, and learns nothing new by it: to ask for the state
    of something until it changes is no repetition."""
    made = [(comparable(call), result) for call, result in _succeeded(turn)]
    answers = [result.content for result in turn.results]
    for place, call in enumerate(turn.reply.tool_calls):
        before = [result for known, result in made if known == comparable(call)]
        if before and (place >= len(answers) or answers[place] == before[-1]):
            return True
    return False


def _claims(turn: Exchange) -> bool:
    """Whether a turn says that something was done, in its own words, where no call could have done it."""
    said = _QUOTED.sub(" ", turn.reply.content[:_MOST]).replace("\u2019", "'")
    return not (turn.reply.tool_calls or turn.called) and _CLAIM.search(said) is not None


def _succeeded(turn: Exchange) -> Iterator[tuple[ToolCall, str]]:
    """Yield the calls that were made before and did not fail, with their results: to make a failed one again is no fault."""
    waiting: list[ToolCall] = []
    for place, message in enumerate(turn.earlier):
        if message.role == "assistant":
            waiting = list(message.tool_calls)
        elif message.role == "tool" and waiting:
            call = waiting.pop(0)
            if place not in turn.earlier_failures:
                yield call, message.content
