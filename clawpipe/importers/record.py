"""What every format is read into: one conversation with what its file says about it, before it becomes rows under contract."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from clawpipe.importers.strict import RefusedError
from clawpipe.messages import Message, ToolCall

Kind = Literal["main", "side"]


@dataclass(frozen=True)
class Tokens:
    """What an engine consumed and produced: ids [T], mask [T] of trained tokens, their log-probs [T] in nats (0 elsewhere)."""

    ids: Sequence[int]
    mask: Sequence[bool]
    logprobs: Sequence[float] | None
    advantages: Sequence[float] | None = None


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
class Conversation:
    """One imported conversation.

    Attributes:
        prompt: what makes two conversations attempts at one task; with `group` unset, that is what groups them.
        kinds: main or side, one an assistant message.
        extra: every field of the record that no column holds.
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


class Fields:
    """A record's fields, taken out one by one with their types checked; what is left over is `rest`."""

    def __init__(self, record: Mapping[str, Any], where: str = "") -> None:
        self._left, self._where = dict(record), where

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

    @property
    def rest(self) -> dict[str, Any]:
        return self._left


def tool_call(name: Any, arguments: Any, call_id: str) -> ToolCall:
    """A call in the neutral form. Arguments that are no JSON object are kept as they came, flagged: they are negatives."""
    if isinstance(arguments, dict):
        return ToolCall(call_id, str(name), json.dumps(arguments, ensure_ascii=False), not isinstance(name, str))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(call_id, str(name), text, not isinstance(name, str) or not _is_object(text))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


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


def as_list(value: Any, where: str) -> Iterator[dict[str, Any]]:
    """Objects of a JSON array.

    Raises:
        RefusedError: it holds something else.
    """
    for part in value:
        if not isinstance(part, dict):
            raise RefusedError(f"{where}[]: not an object")
        yield part
