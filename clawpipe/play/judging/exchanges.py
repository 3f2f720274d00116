"""Split a conversation into exchanges: the user's request, the model's turn, its tool results, and the user's next message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawpipe.core.conversation.messages import Message
from clawpipe.data.wire.failures import failed_results, reports_failure

_MOST_BEFORE = 40  # messages of earlier exchanges


@dataclass(frozen=True)
class Exchange:
    """A main turn with its context and the messages that follow. An exchange ends where the user speaks next.

    Attributes:
        turn: its number, as `scores.turn` has it.
        request: the user's words before it; "": none.
        earlier: the messages between the request and this turn.
        reply: the turn.
        results: the results of its calls.
        failures: whether each of the results is a failure.
        earlier_failures: places among `earlier` of results that are failures.
        words: what the user said when the exchange was over; "": nothing.
        closes: whether it is the last turn of its exchange.
        system: the system prompt; "": none.
        before: the last messages of the exchanges before this one.
        called: whether a call that may have worked was made before the turn, in this exchange or an earlier one.
    """

    turn: int
    request: str
    earlier: tuple[Message, ...]
    reply: Message
    results: tuple[Message, ...]
    failures: tuple[bool, ...]
    earlier_failures: frozenset[int]
    words: str
    closes: bool
    system: str = ""
    before: tuple[Message, ...] = ()
    called: bool = False

    @property
    def following(self) -> str | None:
        """Return what the user said next; None if nothing followed, or the model made another turn."""
        return (self.words or None) if self.closes else None


def exchanges_of(trajectory: Mapping[str, Any]) -> list[Exchange]:
    """Return the main turns of a row of `trajectories`."""
    messages = [Message.from_dict(message) for message in trajectory["messages"]]
    marks = failed_results(trajectory.get("extra"))
    tools = ((at, one.content) for at, one in enumerate(messages) if one.role == "tool")
    failed = frozenset(at for at, content in tools if reports_failure(content, marks.get(at)))
    return [_exchange(messages, failed, place, turn) for turn, place in main_turns(trajectory)]


def main_turns(trajectory: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield number and place of each main turn of a row of `trajectories`.

    Turns are the last replies, one each; of rows without tokens, `kinds` says which replies are main. Rollouts number their turns,
    what was stored all its replies, as `turn_numbers` does in curation's macros.sql.
    """
    replies = [place for place, message in enumerate(trajectory["messages"]) if message["role"] == "assistant"]
    kinds: list[str] = [turn["kind"] for turn in trajectory["turns"] or ()]
    if trajectory["tokens"] == "none":
        kinds = list(trajectory["kinds"] or ["main"] * len(replies))
    before = len(replies) - len(kinds)
    for number, kind in enumerate(kinds):
        if kind == "main":
            yield number if trajectory["source"] == "rollout" else before + number, replies[before + number]


def _exchange(messages: Sequence[Message], failed: frozenset[int], place: int, turn: int) -> Exchange:
    asked = next((at for at in range(place - 1, -1, -1) if messages[at].role == "user"), None)
    end = next((at for at in range(place + 1, len(messages)) if messages[at].role == "user"), len(messages))
    following = messages[place + 1 : end]
    next_turn = next((at for at, message in enumerate(following) if message.role == "assistant"), len(following))
    begin = 0 if asked is None else asked + 1
    results = [at for at in range(place + 1, place + 1 + next_turn) if messages[at].role == "tool"]
    return Exchange(
        turn=turn,
        request="" if asked is None else messages[asked].content,
        earlier=tuple(messages[begin:place]),
        reply=messages[place],
        results=tuple(messages[at] for at in results),
        failures=tuple(at in failed for at in results),
        earlier_failures=frozenset(at - begin for at in failed if begin <= at < place),
        words=_words(messages, end),
        closes=next_turn == len(following),
        system="\n".join(message.content for message in messages[:begin] if message.role == "system"),
        before=_before(messages, asked or 0),
        called=sum(len(message.tool_calls) for message in messages[:place]) > sum(at < place for at in failed),
    )


def _before(messages: Sequence[Message], end: int) -> tuple[Message, ...]:
    """Return the last messages before a place, apart from system prompts."""
    return tuple(message for message in messages[max(end - _MOST_BEFORE, 0) : end] if message.role != "system")


def _words(messages: Sequence[Message], start: int) -> str:
    """Return the user's messages that follow one another from `start` on."""
    end = next((at for at in range(start, len(messages)) if messages[at].role != "user"), len(messages))
    return "\n".join(message.content for message in messages[start:end])
