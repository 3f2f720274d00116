"""Shorten a conversation to a budget of tokens: long tool results first, then whole turns, for which a summary stands.

A turn is an assistant's message with the results of its calls, and the messages of others before it. What comes before the first
turn, the first turns and the last ones stay word for word, and so does each call that stays: with its id and its result, which may
be shorter. So a conversation is cut between turns only, and what is left reads in its old order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from clawpipe.core.conversation.messages import Message

_HEAD, _TAIL = 200, 100  # characters of a long tool result that are shown
_SHORT = 400  # characters of one that stays as it is
_WORDS = 120  # characters of what was said, in a line of a summary
_DETAILS = 60  # of arguments and results

Count = Callable[[Sequence[Message]], int]


@dataclass(frozen=True)
class Shortened:
    """A conversation that is shorter.

    Attributes:
        places: of each message where it stood before; None of the summary.
        results: tool results that were shortened.
        cut: places of the messages that the summary stands for.
        tokens: how long it is now.
    """

    messages: tuple[Message, ...]
    places: tuple[int | None, ...]
    results: int
    cut: tuple[int, ...]
    tokens: int

    def with_summary(self, text: str, count: Count) -> Shortened:
        """Return the conversation with another summary."""
        messages = [
            replace(message, content=text) if place is None else message
            for message, place in zip(self.messages, self.places, strict=True)
        ]
        return Shortened(tuple(messages), self.places, self.results, self.cut, count(messages))


def shorten(messages: Sequence[Message], budget: int, count: Count, keep_first: int, keep_last: int) -> Shortened | None:
    """Return the conversation with at most `budget` tokens; None if what has to stay is longer.

    Args:
        count: returns the tokens of a conversation.
        keep_first, keep_last: turns at both ends that stay as they are.
    """
    steps = _Steps(messages, keep_first, keep_last)
    least = _least(steps.number, lambda taken: steps.taken(taken, count), budget)
    if least is None or not least.cut:
        return least
    lines = summary_of([messages[place] for place in least.cut])
    fuller = _least(len(lines) - 1, lambda gone: least.with_summary(_joined(lines, gone), count), budget)
    return fuller or least


def _least(steps: int, taken: Callable[[int], Shortened], budget: int) -> Shortened | None:
    """Return what fits after the fewest steps, each of which makes it shorter; None if nothing does."""
    low, high, best = -1, steps + 1, None
    while high - low > 1:
        middle = (low + high) // 2
        tried = taken(middle)
        low, high, best = (low, middle, tried) if tried.tokens <= budget else (middle, high, best)
    return best


def turns_of(messages: Sequence[Message]) -> list[range]:
    """Return the places of each turn. Messages after the last turn belong to it, those before the first assistant's to none."""
    ends = _ends(messages)
    first = next((place for place, message in enumerate(messages) if message.role == "assistant"), len(messages))
    turns, begin, end, replied = [], first, first, False
    for place in range(first, len(messages)):
        if place > end and replied and messages[place].role != "tool":  # a result belongs to what is before it
            turns.append(range(begin, place))
            begin, replied = place, False
        replied = replied or messages[place].role == "assistant"
        end = max(end, ends[place])
    if begin < len(messages) and not replied and turns:
        return [*turns[:-1], range(turns[-1].start, len(messages))]
    return [*turns, range(begin, len(messages))] if begin < len(messages) else turns


def _ends(messages: Sequence[Message]) -> list[int]:
    """Return for each message the place of the last result of its calls, or its own. Ids may be used again: a result belongs to
    the nearest call before it.
    """
    ends, callers = list(range(len(messages))), dict[str, int]()
    for place, message in enumerate(messages):
        callers |= {call.id: place for call in message.tool_calls}
        if message.role == "tool" and message.tool_call_id in callers:
            ends[callers[message.tool_call_id]] = place
    return ends


class _Steps:
    """The ways to shorten a conversation, each shorter than the one before: one more tool result, then one more turn, for which one
    line stands.
    """

    def __init__(self, messages: Sequence[Message], keep_first: int, keep_last: int) -> None:
        self._messages = messages
        turns = turns_of(messages)
        self._turns = turns[keep_first : max(0, len(turns) - keep_last)]
        middle = range(self._turns[0].start, self._turns[-1].stop) if self._turns else range(0)
        self._long = [place for place in middle if messages[place].role == "tool" and len(messages[place].content) > _SHORT]
        self.number = len(self._long) + len(self._turns)

    def taken(self, steps: int, count: Count) -> Shortened:
        """Return the conversation after some of the steps."""
        shorter, turns = set(self._long[:steps]), self._turns[: max(0, steps - len(self._long))]
        cut = range(turns[0].start, turns[-1].stop) if turns else range(0)
        kept = [(place, message) for place, message in enumerate(self._messages) if place not in cut]
        places: list[int | None] = [place for place, _ in kept]
        messages = [replace(one, content=_short(one.content)) if place in shorter else one for place, one in kept]
        if turns:
            messages.insert(cut.start, Message("user", counted([self._messages[place] for place in cut])))
            places.insert(cut.start, None)
        return Shortened(tuple(messages), tuple(places), len(shorter - set(cut)), tuple(cut), count(messages))


def _short(text: str) -> str:
    left = len(text) - _HEAD - _TAIL
    return f"{text[:_HEAD]}\n[... {left} characters left out ...]\n{text[-_TAIL:]}"


def counted(messages: Sequence[Message]) -> str:
    """Return in one line what a summary stands for."""
    roles = Counter(message.role for message in messages)
    names = {"user": "of the user", "assistant": "of the assistant", "tool": "of tools", "system": "of the system"}
    parts = [f"{roles[role]} {name}" for role, name in names.items() if roles[role]]
    return f"[Summary of {len(messages)} messages that are left out here: {', '.join(parts)}]"


def summary_of(messages: Sequence[Message]) -> list[str]:
    """Return the lines of a summary by rule: what it stands for, and who said and called what."""
    return [counted(messages), *(line for message in messages for line in _lines(message))]


def _joined(lines: Sequence[str], gone: int) -> str:
    """Return a summary without some of its lines, the oldest ones."""
    return "\n".join([lines[0], *lines[1 + gone :]])


def _lines(message: Message) -> list[str]:
    said = _clipped(message.content, _DETAILS if message.role == "tool" else _WORDS)
    if message.role == "tool":
        return [f"- {message.name or 'tool'} answered: {said}"]
    calls = [f"- assistant called {call.name} with {_clipped(call.arguments, _DETAILS)}" for call in message.tool_calls]
    return ([f"- {message.role}: {said}"] if said else []) + calls


def _clipped(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."
