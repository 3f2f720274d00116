"""How an episode ended, as its row records it, and what its environment says of it from that record."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from clawpipe.core.basics.json_types import Row
from clawpipe.core.conversation.messages import Message
from clawpipe.core.user_code.extensions import CallError
from clawpipe.play.environments.base import Hindsight, Outcome, Reason, TaskItem, Verdict, WithHindsight
from clawpipe.play.environments.calling import called

COLUMNS = ("ended", "verdict", "error", "turn_rewards")  # of `trajectories`


class FailedEpisodeError(CallError):
    """The environment raised during the episode, so nobody can say how the policy did."""


class EpisodeTimeoutError(FailedEpisodeError):
    """The environment took too long and left no verdict."""


class Judges(Protocol):
    """What says how recorded episodes went: an environment, here or in a process of its own."""

    name: str

    @property
    def verify(self) -> Callable[..., Outcome]: ...


@dataclass(frozen=True)
class Ending:
    """How an episode ended.

    Attributes:
        reason: None where nothing is recorded about it.
        verdict: what its world said; None: it was not asked, or had nothing to say.
        error: what the environment raised, in one line; "": nothing.
        turn_rewards: of the policy's turns, in order; None for a turn without one.
    """

    reason: Reason | None = None
    verdict: Verdict | None = None
    error: str = ""
    turn_rewards: tuple[float | None, ...] = ()

    def as_row(self) -> Row:
        """Return the columns `COLUMNS` of a row of `trajectories`."""
        rewarded = any(reward is not None for reward in self.turn_rewards)
        return {
            "ended": self.reason,
            "verdict": written(self.verdict) if self.verdict else None,
            "error": self.error or None,
            "turn_rewards": list(self.turn_rewards) if rewarded else None,
        }

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return the ending that a row of `trajectories` records; columns that it lacks, as older ones do, say nothing."""
        verdict = Verdict(json.loads(row["verdict"])) if row.get("verdict") is not None else None
        return cls(row.get("ended"), verdict, row.get("error") or "", tuple(row.get("turn_rewards") or ()))


def written(verdict: Verdict) -> str:
    """Return a verdict's evidence as the JSON that is recorded.

    Raises:
        TypeError, ValueError: it is no JSON object, or UTF-8 cannot express it.
    """
    if not isinstance(verdict.evidence, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  # of a user's code
        raise TypeError(f"a verdict's evidence is a JSON object, not {type(verdict.evidence).__name__}")
    text = json.dumps(verdict.evidence, sort_keys=True, ensure_ascii=False, allow_nan=False)
    text.encode()  # half a surrogate pair could not be stored
    return text


def outcome_of(environment: Judges, item: TaskItem, messages: Sequence[Message], ending: Ending) -> Outcome:
    """Return what an environment says of a recorded episode.

    Raises:
        FailedEpisodeError: the environment raised during the episode, or took too long and left no verdict.
        Exception: whatever its `verify` raises; a TypeError or ValueError where that returns no outcome with a finite value.
    """
    if ending.error and (ending.reason != "timeout" or ending.verdict is None):
        raise (EpisodeTimeoutError if ending.reason == "timeout" else FailedEpisodeError)(ending.error)
    return checked(called(environment.verify, item, messages, verdict=ending.verdict))


def hindsight_of(environment: Judges, item: TaskItem, messages: Sequence[Message], ending: Ending) -> Hindsight | None:
    """Return the environment's hindsight about a recorded episode; None if it has none."""
    if not isinstance(environment, WithHindsight):
        return None
    return called(environment.hindsight, item, messages, verdict=ending.verdict)


def checked(outcome: Any) -> Outcome:
    """Return what `verify` has returned.

    Raises:
        TypeError, ValueError: it is no outcome with a finite value, or UTF-8 cannot express it.
    """
    if not isinstance(outcome, Outcome):
        raise TypeError(f"verify returns an Outcome, not {type(outcome).__name__}")
    if not math.isfinite(outcome.value):
        raise ValueError(f"an outcome's value is a finite number, not {outcome.value}")
    reason: Any = outcome.reason
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"the reason of an Outcome is a text, not {reason!r:.80}")
    json.dumps([outcome.reason, outcome.evidence], ensure_ascii=False, default=repr).encode()  # half a surrogate pair: not stored
    return outcome if reason is not None else replace(outcome, reason="")


def messages_of(row: Row) -> list[Message]:
    """Return the messages of a row of `trajectories`."""
    return [Message.from_dict(message) for message in row["messages"]]
