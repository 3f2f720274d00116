"""The records that every importer returns: conversations, preferences and prompts, before they become rows under contract."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import msgspec
import orjson

from clawpipe.core.basics.json_types import Options
from clawpipe.core.contracts.logprobs import HIGHEST, LOWEST
from clawpipe.core.contracts.logprobs import Kind as LogprobKind
from clawpipe.core.conversation.endings import Ending
from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.toolcalls import count_tool_calls
from clawpipe.data.wire.failures import UNMARKED

_PATH = re.compile(r"^[/~\\]|(^|[/\\])\.\.([/\\]|$)")

Kind = Literal["main", "side"]
Status = Ending
SIDE = ("heartbeat", "memory", "cron", "side")  # turn types of the sources that no user asked for
_HOTTEST = 2**53  # the highest temperature; a larger integer is no exact double


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
        trace: name of the trace whose calls it is one of, or wraps (`wraps`): then it repeats those that are recorded.
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
    trace: str | None = None
    wraps: bool = False

    @property
    def turns(self) -> Counter[Kind]:
        """The number of turns by kind, without those that are context."""
        return +Counter[Kind]({"main": self.kinds.count("main"), "side": self.kinds.count("side") - self.context})


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
