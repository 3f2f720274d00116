"""Which turns of an imported conversation are not trained on, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clawpipe.core.conversation.endings import CUT, Ending, ending_of_reason
from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.record import Conversation, Kind
from clawpipe.data.wire.thoughts import spoken

NO_CONTENT, NO_TEXT = "turns without content", "turns with parts that are no text"
MALFORMED = "turns with malformed calls"
CUT_SHORT = "turns that were cut short"
CONTINUED = "turns that go on with an answer in the request"
HELD = "turns that were held to a grammar"
ENDS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason")  # fields that say why an answer ended


def says_something(message: Message) -> bool:
    """Whether a message has a tool call or a text to train on; a thought without a text after it does not count."""
    return bool(message.tool_calls or spoken(message.content))


def silenced(conversation: Conversation) -> tuple[Conversation, Counter[str]]:
    """Make main turns without content, with placeholders or with malformed calls side turns, and count them by reason.

    A conversation with recorded tokens stays as it is: its tokens are what was sampled, whatever the text shows.
    """
    recorded = conversation.tokens is not None and conversation.tokens.logprobs is not None
    replies = [(place, message) for place, message in enumerate(conversation.messages) if message.role == "assistant"]
    found = {} if recorded else dict.fromkeys(cut_replies(conversation), CUT_SHORT) | _continued(conversation)
    if recorded or not (conversation.unread or found or any(_reason_for_side(False, message) for _, message in replies)):
        return conversation, Counter()
    shown = _first_shown(conversation)
    unseen = {place for place, _ in replies if place in conversation.unread or place > shown}
    reasons = [found.get(place) or _reason_for_side(place in unseen, message) for place, message in replies]
    pairs = list(zip(conversation.kinds, reasons, strict=True))
    kinds: tuple[Kind, ...] = tuple("side" if reason else kind for kind, reason in pairs)
    return replace(conversation, kinds=kinds), Counter(reason for kind, reason in pairs if reason and kind == "main")


def _first_shown(conversation: Conversation) -> int:
    """Return the place from which on a reply may be about a picture, of the user or a tool, that a policy of texts cannot see."""
    shown = (place for place in conversation.unread if conversation.messages[place].role in ("user", "tool"))
    return min(shown, default=len(conversation.messages))


def _continued(conversation: Conversation) -> dict[int, str]:
    return {len(conversation.messages) - 1: CONTINUED} if conversation.continued else {}


def ended(conversation: Conversation) -> Conversation:
    """Return a conversation with the status that its record, or its last message, gives as the reason of its end."""
    if conversation.status is not None or conversation.row is not None:
        return conversation
    said = _reasons_of(conversation).get(len(conversation.messages) - 1) or reason_in(conversation.extra)
    return replace(conversation, status=said) if said else conversation


def cut_replies(conversation: Conversation) -> set[int]:
    """Return the places of messages that were cut short, and after which the conversation went on all the same."""
    last = len(conversation.messages) - 1
    return {place for place, ending in _reasons_of(conversation).items() if ending in CUT and place != last}


def _reasons_of(conversation: Conversation) -> dict[int, Ending]:
    """Return the endings of single replies, by their place, from the further fields of messages."""
    messages, fields = conversation.messages, conversation.extra.get("messages")
    found: dict[int, Ending] = {}
    for part in fields if isinstance(fields, list) else ():
        place = part.get("message") if isinstance(part, dict) else None
        ending = reason_in(part) if isinstance(place, int) and 0 <= place < len(messages) else None
        if isinstance(place, int) and ending and messages[place].role == "assistant":
            found[place] = ending
    return found


def reason_in(fields: Mapping[str, Any]) -> Ending | None:
    """Return the ending that the further fields of a record or a message say; None if they say nothing."""
    return next((ending for name in ENDS if isinstance(fields.get(name), str) and (ending := ending_of_reason(fields[name]))), None)


def _reason_for_side(unread: bool, message: Message) -> str:
    if unread or not says_something(message):
        return NO_TEXT if unread else NO_CONTENT
    return MALFORMED if any(call.malformed for call in message.tool_calls) else ""
