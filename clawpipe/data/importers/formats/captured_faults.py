"""What of a captured conversation does not teach, and the pairs that corrections make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from clawpipe.core.conversation.messages import Message
from clawpipe.data.capture.sessions import Reply, Session
from clawpipe.data.capture.untaught import BY_CONSTRAINT, BY_CONTENT, CONSTRAINED, NO_TEXT, Fault, fault_of
from clawpipe.data.importers.formats.captured_rows import messages_of_request
from clawpipe.data.importers.message import read_message, read_messages
from clawpipe.data.importers.record import Conversation, Origin, Preference
from clawpipe.data.importers.toolcalls import tools_on_offer
from clawpipe.data.importers.untaught import CUT_SHORT, HELD, silenced
from clawpipe.data.importers.untaught import NO_TEXT as OTHER_PARTS

UNPAIRED = "corrections of such turns"
_BY_FAULT = (BY_CONTENT, BY_CONSTRAINT)  # sources of the type of a turn that the gateway itself has made a side turn
_SHOWN: dict[Fault, str] = {NO_TEXT: OTHER_PARTS, CONSTRAINED: HELD}  # what faults are counted as; others as cut short


def taught(conversation: Conversation) -> tuple[Conversation, Counter[str]]:
    """Make turns side turns that teach nothing as text, as `silenced` does; a row with tokens stays as it is."""
    row = conversation.row or {}
    if row.get("tokens") == "recorded":
        return conversation, Counter()
    made, found = silenced(conversation)
    return replace(made, row=dict(row) | {"kinds": made.kinds}), found


def corrections(session: Session, chain: Sequence[Reply], origin: Origin) -> Iterator[Preference]:
    """Yield a pair for each turn that somebody corrected: the correction is chosen, the answer rejected. A turn with a fault gives
    none: its question or its answer is not known whole.

    Raises:
        RefusedError: a message cannot be read.
    """
    for reply in chain:
        if fault_of(reply.turn.record, reply.answer):
            continue
        request = reply.turn.record.request
        for feedback in reply.turn.feedback if reply is reply.turn.chosen else ():
            if feedback.correction:
                yield Preference(
                    read_messages(messages_of_request(request)).messages,
                    (Message("assistant", feedback.correction),),
                    (read_message(reply.answer.message),),
                    tools=tools_on_offer(request.get("tools")),
                    extra={"key": session.key, "feedback": feedback.id, "turn": reply.turn.record.id},
                    origin=origin,
                    session=session.name,
                    user=reply.turn.record.user,
                )


def faults(chain: Sequence[Reply]) -> Counter[str]:
    """Return how many replies of a chain do not teach although their client calls them main turns, by reason."""
    found: Counter[str] = Counter()
    for reply in chain:
        record = reply.turn.record
        if (fault := fault_of(record, reply.answer)) and (record.turn_type == "main" or record.turn_type_from in _BY_FAULT):
            found[_SHOWN.get(fault, CUT_SHORT)] += 1
            found[UNPAIRED] += any(one.correction for one in reply.turn.feedback if reply is reply.turn.chosen)
    return +found
