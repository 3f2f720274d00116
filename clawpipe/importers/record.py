"""What every format is read into: one conversation with what its file says about it, before it becomes rows under contract."""

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

from clawpipe.contracts.logprobs import HIGHEST, LOWEST
from clawpipe.contracts.logprobs import Kind as LogprobKind
from clawpipe.importers.strict_json import RefusedError
from clawpipe.importers.toolcalls import count_tool_calls, parsed, tools_on_offer
from clawpipe.messages import Message

_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_PATH = re.compile(r"^[/~\\]|(^|[/\\])\.\.([/\\]|$)")

Kind = Literal["main", "side"]
Status = Literal["completed", "partial", "truncated", "aborted"]
SIDE = ("heartbeat", "memory", "cron", "side")  # kinds of turns that nobody asked for; words of the sources
NO_CONTENT, NO_TEXT = "turns without content", "turns with parts that are no text"  # why nothing is learned of them


@dataclass(frozen=True)
class Tokens:
    """What an engine consumed and produced: ids [T], mask [T] of trained tokens, their log-probs [T] in nats (0 elsewhere).

    `temperature` is that of sampling and `policy_version` the digest of what sampled them, where the record says so. `kind` is
    what the format says of its log-probs: a ratio needs those at the temperature of sampling.
    """

    ids: Sequence[int]
    mask: Sequence[bool]
    logprobs: Sequence[float] | None
    advantages: Sequence[float] | None = None
    temperature: float | None = None
    policy_version: str | None = None
    kind: LogprobKind = "unknown"


def check_tokens(tokens: Tokens | None) -> None:
    """What the contract asks of recorded tokens, checked while the line that they are of is known.

    Raises:
        RefusedError: nothing is sampled, or the first token, which nothing precedes; a log-prob that is none.
    """
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
    """Names from outside never lead out of a folder, whoever makes a file name of them one day.

    Raises:
        RefusedError: one begins as a path does, or has a part "..".
    """
    for field_name, name in names.items():
        if isinstance(name, str) and _PATH.search(name):
            raise RefusedError(f"{field_name}: a path")


def check_storable(part: Any) -> None:
    """Whether what was read can be written down: a text may spell another, which holds what its line would be refused for.

    Raises:
        RefusedError: half a surrogate pair; an integer or a nesting that no column holds.
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
    """They are the same in many records."""
    if tools is not None:
        orjson.dumps(orjson.loads(tools))


@dataclass(frozen=True)
class Judgement:
    """A score that came with the data. `turn` is the index of the assistant turn; None scores the whole conversation."""

    value: float
    origin: Literal["verifier", "judge", "user", "custom"]
    success: bool | None = None
    turn: int | None = None
    reason: str = ""
    hints: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """Where a record was read: the name of its format, its file, and the first of its lines."""

    format: str
    file: str
    line: int


@dataclass(frozen=True)
class Conversation:
    """One imported conversation.

    Attributes:
        prompt: what makes two conversations attempts at one task, unless `group` does.
        group: name of the attempts that were sampled and scored together, where the record is of such a group.
        kinds: main or side, one an assistant message.
        status: how it ended, where the record says so.
        tool_calls, tool_errors: how many calls were made and failed, as the record counts them, else by `count_tool_calls`.
        tools: JSON array of the tools that were on offer.
        extra: every field of the record that no other attribute holds.
        row: of a row that clawpipe itself exported every column as it was; None of anything else.
        unread: indices of the messages in which a placeholder stands for what is no text; `extra` has it whole.
        lines: how many of its file it is made of.
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
    tools: str | None = None
    origin: Origin | None = None
    row: Mapping[str, Any] | None = None
    unread: frozenset[int] = frozenset()
    lines: int = 1


@dataclass(frozen=True)
class Preference:
    """Two continuations of one prompt, the chosen one better; neither holds the prompt again. `margin` is the lead in score."""

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
    """A task without an attempt. Whatever a verifier needs is in `extra`, as the record calls it."""

    messages: tuple[Message, ...]
    tools: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    session: str | None = None
    user: str | None = None


class Fields:
    """A record's fields, taken out one by one with their types checked; what is left over is `rest`."""

    def __init__(self, record: Mapping[str, Any], where: str = "") -> None:
        self._left, self._where = dict(record), where

    def __bool__(self) -> bool:
        return bool(self._left)

    def take(self, name: str, *kinds: type, default: Any = ...) -> Any:
        """The value of `name`, one of `kinds`; null counts as absent.

        Raises:
            RefusedError: it is missing and has no default, or is of another type.
        """
        value = self._left.pop(name, None)
        if value is None:
            if default is ...:
                raise RefusedError(f"{self._where}{name}: missing")
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise RefusedError(f"{self._where}{name}: not {' or '.join(kind.__name__ for kind in kinds)}")
        return value

    def peek(self, name: str) -> Any:
        """The value of `name`, which is left where it is; None where it is absent or was taken."""
        return self._left.get(name)

    @property
    def rest(self) -> dict[str, Any]:
        return {name: value for name, value in self._left.items() if value is not None}


def take_tools(fields: Fields, names: Sequence[str] = ("tools",)) -> str | None:
    """JSON array of the tools on offer, by the first of the names that says any. A text that spells none is left where it is.

    Raises:
        RefusedError: it is neither a list nor a text.
    """
    for name in names:
        value = fields.peek(name)
        if isinstance(value, str) and value.strip() and parsed(value) is None:
            continue
        if tools := tools_on_offer(fields.take(name, list, str, default=None)):
            return tools
    return None


def prompt_hash(prompt: str) -> str:
    """Name of a task: sha256 of its prompt in hexadecimal digits; space around the prompt does not count."""
    return hashlib.sha256(prompt.strip().encode()).hexdigest()


def counted(messages: Sequence[Message], failed: Container[int] = ()) -> dict[str, Any]:
    """The attributes of a conversation that count its tool calls. `failed` is as for `count_tool_calls`."""
    return dict(zip(("tool_calls", "tool_errors"), count_tool_calls(messages, failed), strict=True))


def first_request(messages: Sequence[Message]) -> str:
    """The first user message: what was asked.

    Raises:
        RefusedError: nobody asked anything.
    """
    asked = next((message.content for message in messages if message.role == "user"), None)
    if asked is None:
        raise RefusedError("no user message")
    return asked


def all_main(messages: Sequence[Message]) -> tuple[Kind, ...]:
    """Kinds of a conversation without side turns.

    Raises:
        RefusedError: it has no assistant message.
    """
    kinds: tuple[Kind, ...] = tuple("main" for message in messages if message.role == "assistant")
    if not kinds:
        raise RefusedError("no assistant message")
    return kinds


def main_but_muted(messages: Sequence[Message], muted: Container[int]) -> tuple[Kind, ...]:
    """Kinds of a conversation in which the messages at some indices are context.

    Raises:
        RefusedError: it has no assistant message.
    """
    all_main(messages)
    return tuple("side" if place in muted else "main" for place, message in enumerate(messages) if message.role == "assistant")


def says_something(message: Message) -> bool:
    """Whether there is a call or a text to learn from; a thought that nothing follows is none."""
    content = message.content
    return bool(message.tool_calls) or bool((content if content[:1] not in "< \n\t\r" else _THOUGHT.sub("", content, 1)).strip())


def silenced(conversation: Conversation) -> tuple[Conversation, Counter[str]]:
    """The conversation with turns as `side` of which nothing is to be learned, and how many main turns these were, by reason.

    They say nothing, or a placeholder stands in them. Recorded tokens are what was sampled, whatever the text shows: they stay.
    """
    recorded = conversation.tokens is not None and conversation.tokens.logprobs is not None
    spoken = [(place, message) for place, message in enumerate(conversation.messages) if message.role == "assistant"]
    if recorded or (not conversation.unread and all(says_something(message) for _, message in spoken)):
        return conversation, Counter()
    reasons = [_why_silent(place in conversation.unread, message) for place, message in spoken]
    pairs = list(zip(conversation.kinds, reasons, strict=True))
    kinds: tuple[Kind, ...] = tuple("side" if reason else kind for kind, reason in pairs)
    return replace(conversation, kinds=kinds), Counter(reason for kind, reason in pairs if reason and kind == "main")


def _why_silent(unread: bool, message: Message) -> str:
    return NO_TEXT if unread else "" if says_something(message) else NO_CONTENT


def as_list(value: Any, where: str) -> Iterator[dict[str, Any]]:
    """Objects of a JSON array.

    Raises:
        RefusedError: it holds something else.
    """
    for part in value:
        if not isinstance(part, dict):
            raise RefusedError(f"{where}[]: not an object")
        yield part
