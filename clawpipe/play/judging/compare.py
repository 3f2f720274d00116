"""Judges that compare two answers to the same messages, without knowing which model wrote which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from clawpipe.core.basics.json_types import Row
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError
from clawpipe.play.judging.base import Prepares, Scorer
from clawpipe.play.judging.exchanges import exchanges_of


class Question(NamedTuple):
    """Two answers to `before`, the messages that both saw.

    Attributes:
        tools: JSON of the tools on offer.
        trajectory: id of the conversation.
    """

    before: tuple[Message, ...]
    first: Message
    second: Message
    tools: str = "[]"
    trajectory: str = ""

    @property
    def swapped(self) -> Question:
        return self._replace(first=self.second, second=self.first)


@runtime_checkable
class Compares(Protocol):
    """A judge that can be shown two answers at once. It gives equal questions equal answers."""

    def compare(self, questions: Sequence[Question]) -> Sequence[int]:
        """Return for each question 1 where the first answer is better, -1 where the second is, and 0 where that cannot be decided.

        Raises:
            BusyError: the judge's server is away, or too much of what it says cannot be used.
        """
        ...


@dataclass(frozen=True)
class ByScore:
    """Compares answers by the scores that a scorer gives each of them alone, as the last turn of a conversation."""

    scorer: Scorer

    def compare(self, questions: Sequence[Question]) -> list[int]:
        """Return the sign of the difference of the scores.

        Raises:
            ConfigError: the scorer has no score for any answer: it judges turns by what came next, say.
        """
        rows = [_row(one.before, answer, one.tools) for one in questions for answer in (one.first, one.second)]
        if isinstance(self.scorer, Prepares):
            self.scorer.prepare(rows)
        values = [self._value(row) for row in rows]
        if values and not any(value is not None for value in values):
            what = f"{self.scorer.name} has no score for an answer that nothing followed, and so cannot compare answers"
            raise ConfigError(what, "evaluation.judge", "name one that can: prm, reward-model, or one of your own (docs/judges.md)")
        return [_sign(first, second) for first, second in zip(values[::2], values[1::2], strict=True)]

    def _value(self, row: Row) -> float | None:
        turn = exchanges_of(row)[-1].turn
        found = {score.turn: score.value for score in self.scorer.score({}, row)}
        return found.get(turn, found.get(None))


def preferences(judge: Scorer | Compares, questions: Sequence[Question]) -> list[float]:
    """Return for each question 1 where the first answer is preferred, 0 where the second is, and 0.5 where neither is.

    A judge is shown both orders, because many prefer what comes first: an answer is preferred where it is better in both. Answers
    that are equal are a tie without being shown.
    """
    comparing = judge if isinstance(judge, Compares) else ByScore(judge)
    open_ones = [place for place, one in enumerate(questions) if one.first != one.second]
    asked = [questions[place] for place in open_ones]
    verdicts = comparing.compare([*asked, *(one.swapped for one in asked)])
    values = [0.5] * len(questions)
    for place, forward, backward in zip(open_ones, verdicts[: len(asked)], verdicts[len(asked) :], strict=True):
        if forward == -backward:
            values[place] = 0.5 + forward / 2
    return values


def _sign(first: float | None, second: float | None) -> int:
    if first is None or second is None:
        return 0
    return (first > second) - (first < second)


def _row(before: Sequence[Message], answer: Message, tools: str) -> Row:
    """Return a conversation that ends with the answer, as a row of `trajectories` that was imported as text."""
    messages = [message.as_dict() for message in (*before, answer)]
    replies = sum(message.role == "assistant" for message in before)
    kinds = ["side"] * replies + ["main"]
    return {
        "trajectory_id": "",
        "source": "imported",
        "messages": messages,
        "turns": [],
        "kinds": kinds,
        "tokens": "none",
        "tools": tools,
    }
