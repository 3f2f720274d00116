"""The protocol of scorers, and what they are called by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, Protocol, runtime_checkable

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.scorers import VERIFIER
from clawpipe.core.conversation.messages import Message
from clawpipe.core.user_code.extensions import ExtensionPoint

Origin = Literal["verifier", "judge", "user", "custom"]
Row = Mapping[str, Any]

ROLLOUT = "rollout"  # what has no item of an environment cannot be verified by one
_JUDGES = {
    "prm": "prm:make_prm",
    "group": "group:make_group",
    "rules": "rules:RulesJudge",
    "function": "functions:make_function",
    "reward-model": "reward_model:make_reward_model",
}
_REWARDS = {
    name: f"rewards:make_{name.replace('-', '_')}"
    for name in ("overlong", "cosine-length", "repetition", "format", "tool-schema", "script")
}
# Made by name, so that a step has only the ones in its key that its settings name.
_BUILT_IN = {name: f"{__package__}.{place}" for name, place in (_JUDGES | _REWARDS | {VERIFIER: "verifier:VerifierScorer"}).items()}
SCORERS = ExtensionPoint("scorer", "scorers", _BUILT_IN, members=("name", "origin", "score"))


@dataclass(frozen=True)
class Score:
    """A number for a trajectory (`turn` None) or for one of its turns.

    Attributes:
        value: finite.
        success: None where the scorer does not say.
        evidence: the data from which the value was computed; plain JSON, equal for equal inputs.
        hints: hindsight in words, candidates of one to three sentences each.
        demonstration: the turns that would have been right, without the question.
    """

    value: float
    success: bool | None = None
    reason: str = ""
    evidence: JsonObject = field(default_factory=dict)
    turn: int | None = None
    hints: tuple[str, ...] = ()
    demonstration: tuple[Message, ...] = ()


def with_mean(turns: Iterable[Score], says_success: bool = True) -> Iterator[Score]:
    """Yield the scores of turns, and their mean as that of the trajectory.

    A mean above 0 is a success, one below 0 is none, and 0 does not say.

    Args:
        says_success: False for numbers whose sign says nothing.
    """
    values = []
    for score in turns:
        values.append(score.value)
        yield score
    if values:
        mean = fmean(values)
        yield Score(mean, mean > 0 if mean and says_success else None, "mean of the turns", {"turns": len(values)})


class Scorer(Protocol):
    """Scores trajectories. The `name` of each scorer of a dataset is different.

    Stored trajectories, captured or imported, have no item. A scorer of origin "judge" is given them nevertheless; so is another
    one with an attribute `scores_stored` that is true.
    """

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> Origin: ...

    def score(self, item: Row, trajectory: Row) -> Iterable[Score]:
        """Yield scores of one trajectory; none if this scorer does not apply to it.

        Args:
            item: row of `task_items`; empty for a stored trajectory.
            trajectory: row of `trajectories` without the token streams.
        """
        ...


@runtime_checkable
class Prepares(Protocol):
    """A scorer that prepares many trajectories together before it scores each of them, such as one that asks a server."""

    def prepare(self, trajectories: Sequence[Row]) -> None:
        """Compute what `score` needs for these rows of `trajectories`.

        Raises:
            BusyError: the server does not answer, or too many of its answers cannot be used.
        """
        ...


@runtime_checkable
class Concludes(Protocol):
    """A scorer that checks a whole dataset after it has been scored."""

    def conclude(self) -> None:
        """Check the scores of a dataset; called when every trajectory has been scored.

        Raises:
            BusyError: too many answers of the server cannot be used.
        """
        ...


def scores_stored(scorer: Scorer) -> bool:
    """Whether a scorer scores captured and imported trajectories, which have no item."""
    return bool(getattr(scorer, "scores_stored", scorer.origin == "judge"))
