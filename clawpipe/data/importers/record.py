"""The records that every importer returns: conversations, preferences and prompts, before they become rows under contract."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import msgspec
import orjson

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.contracts.logprobs import HIGHEST, LOWEST
from clawpipe.core.contracts.logprobs import Kind as LogprobKind
from clawpipe.core.conversation.endings import CUT, Ending, ending_of_reason
from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.toolcalls import count_tool_calls, tools_on_offer
from clawpipe.data.wire.arguments import parsed
from clawpipe.data.wire.failures import UNMARKED
from clawpipe.data.wire.thoughts import spoken

_PATH = re.compile(r"^[/~\\]|(^|[/\\])\.\.([/\\]|$)")

Kind = Literal["main", "side"]
Status = Ending
SIDE = ("heartbeat", "memory", "cron", "side")  # turn types of the sources that no user asked for
NO_CONTENT, NO_TEXT = "turns without content", "turns with parts that are no text"  # why turns are not trained on
MALFORMED = "turns with malformed calls"  # likewise
CUT_SHORT = "turns that were cut short"
CONTINUED = "turns that go on with an answer in the request"
_HOTTEST = 2**53  # the highest temperature; a larger integer is no exact double
HELD = "turns that were held to a grammar"
ENDS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason")  # fields that say why an answer ended


@dataclass(frozen=True)
class Tokens:
    """Recorded tokens: ids [T], mask [T] of trained tokens, and their log-probs [T] in nats (0 elsewhere).

    `temperature` is the sampling temperature and `policy_version` the digest of the sampling policy, where the record holds them.
    `kind` tells whether the format's log-probs are tempered or raw: a ratio needs those at the sampling temperature. It is none
    where a setting changed the draw (`clawpipe.data.wire.draw`).
    """

    ids: Sequence[int]
    mask: Sequence[bool]
    logprobs: Sequence[float] | None
    advantages: Sequence[float] | None = None
    temperature: float | None = None
    policy_version: str | None = None
    kind: LogprobKind = "unknown"


def can_be_trained_on(tokens: Tokens) -> bool:
    """Whether tokens make a row with or without their log-probs: some are sampled, and the first, which has no context, is not."""
    return any(tokens.mask) and not tokens.mask[0]


def check_tokens(tokens: Tokens | None) -> None:
    """Check recorded tokens against the contract while their line is still known.

    Raises:
        RefusedError: no token is sampled, the first one is (it has no context), or a log-prob or the temperature is out of range.
    """
    if tokens is not None and tokens.temperature is not None and not abs(tokens.temperature) <= _HOTTEST:
        raise RefusedError("temperature: out of range")
    if tokens is None or tokens.logprobs is None:
        return
    if not any(tokens.mask):
        raise RefusedError("recorded, but nothing is sampled")
    if tokens.mask[0]:
        raise RefusedError("first token is sampled")
    sampled = (value for value, kept in zip(tokens.logprobs, tokens.mask, strict=True) if kept)
    if not all(LOWEST <= value <= HIGHEST for value in sampled):
        raise RefusedError("log-prob of a sampled token out of range")


def check_names(**names: Any) -> None:
    """Check that names from outside cannot leave a folder if they become file names.

    Raises:
        RefusedError: a name begins like a path, or has a part "..".
    """
    for field_name, name in names.items():
        if isinstance(name, str) and _PATH.search(name):
            raise RefusedError(f"{field_name}: a path")


def check_storable(part: Any) -> None:
    """Check that a record can be stored: JSON inside a text may hold values for which its line would be refused.

    Raises:
        RefusedError: half a surrogate pair; an integer or a nesting that no column can store.
    """
    try:
        msgspec.json.encode(part)
        orjson.dumps(getattr(part, "extra", None), option=orjson.OPT_NON_STR_KEYS)
        _check_tools(getattr(part, "tools", None))
    except UnicodeEncodeError:
        raise RefusedError("half a surrogate pair") from None
    except (TypeError, ValueError, RecursionError):
        raise RefusedError("a text in it spells what no column holds") from None


@lru_cache(maxsize=64)
def _check_tools(tools: str | None) -> None:
    """Check that the tools can be written as JSON; cached, because many records have the same tools."""
    if tools is not None:
        orjson.dumps(orjson.loads(tools))


@dataclass(frozen=True)
class Judgement:
    """A score from the imported data. `turn` is the index of the assistant turn; None scores the whole conversation."""

    value: float
    origin: Literal["verifier", "judge", "user", "custom"]
    success: bool | None = None
    turn: int | None = None
    reason: str = ""
    hints: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """The source of a record: the name of its format, its file, and its first line."""

    format: str
    file: str
    line: int


@dataclass(frozen=True)
class Conversation:
    """One imported conversation.

    Attributes:
        prompt: identifies the task: conversations with the same prompt are attempts at one task, unless `group` is set.
        group: name of the group of attempts that were sampled and scored together, if there is one.
        kinds: main or side for each assistant message.
        status: how the conversation ended, where the record holds it.
        tool_calls, tool_errors: the number of calls and of failed calls, from the record or by `count_tool_calls`.
        failed: whether a tool result is marked as a failure, by the index of its message, where its record says either.
        tools: JSON array of the tools on offer.
        extra: every field of the record that no other attribute holds.
        row: every column of a row that clawpipe exported; None for other formats.
        unread: indices of the messages in which a placeholder replaces content that is not text; `extra` holds that content.
        lines: the number of lines of the file that the conversation was read from.
        context: how many of the assistant messages are the history that the record repeats, and no turns of it.
        continued: whether the last message goes on with the answer before it, with which its request ended (a prefill).
    """

    messages: tuple[Message, ...]
    kinds: tuple[Kind, ...]
    prompt: str
    session: str | None = None
    user: str | None = None
    group: str | None = None
    model: str | None = None
    tokens: Tokens | None = None
    judgements: tuple[Judgement, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    status: Status | None = None
    tool_calls: int | None = None
    tool_errors: int | None = None
    failed: Mapping[int, bool] = field(default_factory=dict)
    tools: str | None = None
    origin: Origin | None = None
    row: Mapping[str, Any] | None = None
    unread: frozenset[int] = frozenset()
    lines: int = 1
    context: int = 0
    continued: bool = False

    @property
    def turns(self) -> Counter[Kind]:
        """The number of turns by kind, without those that are context."""
        context: dict[Kind, int] = {"side": self.context}
        return Counter(self.kinds) - Counter(context)


@dataclass(frozen=True)
class Preference:
    """A chosen and a rejected continuation of one prompt, without the prompt. `margin` is the difference of their scores."""

    prompt: tuple[Message, ...]
    chosen: tuple[Message, ...]
    rejected: tuple[Message, ...]
    margin: float | None = None
    tools: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    session: str | None = None
    user: str | None = None


@dataclass(frozen=True)
class Prompt:
    """A task without an attempt. `extra` holds the fields of the record that a verifier may need, under their own names."""

    messages: tuple[Message, ...]
    tools: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    session: str | None = None
    user: str | None = None


class Fields:
    """The fields of a record, taken out one by one with a check of their types; `rest` holds the others."""

    def __init__(self, record: Mapping[str, Any], where: str = "") -> None:
        self._left, self._where = dict(record), where

    def __bool__(self) -> bool:
        return bool(self._left)

    def take(self, name: str, *kinds: type, default: Any = ...) -> Any:
        """Remove and return the value of `name`, which has one of the types `kinds`; null counts as absent.

        Raises:
            RefusedError: the field is missing and has no default, or has another type.
        """
        value = self._left.pop(name, None)
        if value is None:
            if default is ...:
                raise RefusedError(f"{self._where}{name}: missing")
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise RefusedError(f"{self._where}{name}: not {' or '.join(kind.__name__ for kind in kinds)}")
        return value

    def says_null(self, name: str) -> bool:
        """Whether the record has this field, and null in it."""
        return name in self._left and self._left[name] is None

    def peek(self, name: str) -> Any:
        """Return the value of `name` without removing it; None if it is absent or was taken."""
        return self._left.get(name)

    @property
    def rest(self) -> JsonObject:
        return {name: value for name, value in self._left.items() if value is not None}


def take_tools(fields: Fields, names: Sequence[str] = ("tools",)) -> str | None:
    """Take the tools on offer from the first of these fields that holds any, as a JSON array. A text that is not JSON stays.

    Raises:
        RefusedError: the field is neither a list nor a text.
    """
    for name in names:
        value = fields.peek(name)
        if isinstance(value, str) and value.strip() and parsed(value) is None:
            continue
        if tools := tools_on_offer(fields.take(name, list, str, default=None)):
            return tools
    return None


def prompt_hash(prompt: str) -> str:
    """Return the sha256 of a prompt without surrounding space, in hexadecimal digits; it identifies the task."""
    return hashlib.sha256(prompt.strip().encode()).hexdigest()


def counted(messages: Sequence[Message], failed: Mapping[int, bool] = UNMARKED) -> Options:
    """Return the attributes of a conversation about its tool calls. `failed` is as for `count_tool_calls`."""
    calls, errors = count_tool_calls(messages, failed)
    return {"tool_calls": calls, "tool_errors": errors, "failed": failed}


def first_request(messages: Sequence[Message]) -> str:
    """Return the text of the first user message.

    Raises:
        RefusedError: there is no user message.
    """
    asked = next((message.content for message in messages if message.role == "user"), None)
    if asked is None:
        raise RefusedError("no user message")
    return asked


def all_main(messages: Sequence[Message]) -> tuple[Kind, ...]:
    """Return the kinds of a conversation in which every turn is a main turn.

    Raises:
        RefusedError: there is no assistant message.
    """
    kinds: tuple[Kind, ...] = tuple("main" for message in messages if message.role == "assistant")
    if not kinds:
        raise RefusedError("no assistant message")
    return kinds


def main_but_muted(messages: Sequence[Message], muted: Container[int]) -> tuple[Kind, ...]:
    """Return the kinds of a conversation in which the messages at the indices `muted` are side turns.

    Raises:
        RefusedError: there is no assistant message.
    """
    all_main(messages)
    return tuple("side" if place in muted else "main" for place, message in enumerate(messages) if message.role == "assistant")


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


def as_list(value: Any, where: str) -> Iterator[JsonObject]:
    """Yield the objects of a JSON array.

    Raises:
        RefusedError: an element is not an object.
    """
    for part in value:
        if not isinstance(part, dict):
            raise RefusedError(f"{where}[]: not an object")
        yield part
