"""The scorer that asks the environment's verifier, and its hindsight if it has any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clawpipe.play.environments.base import Hindsight, TaskItem
from clawpipe.play.environments.ending import Ending, Judges, hindsight_of, messages_of, outcome_of
from clawpipe.play.judging.base import Origin, Row, Score


@dataclass(frozen=True)
class VerifierScorer:
    """Yields one score per trajectory of its environment, from what is recorded alone, and one for each turn with a reward;
    successes have hindsight too."""

    environment: Judges

    @property
    def name(self) -> str:
        return f"verifier/{self.environment.name}"

    @property
    def origin(self) -> Origin:
        return "verifier"

    def score(self, item: Row, trajectory: Row) -> Iterator[Score]:
        if item["environment"] != self.environment.name:
            return
        recorded = TaskItem.from_row(dict[str, Any](item)), messages_of(dict(trajectory)), Ending.from_row(dict(trajectory))
        outcome = outcome_of(self.environment, *recorded)
        hindsight = hindsight_of(self.environment, *recorded) or Hindsight(())
        yield Score(
            outcome.value,
            outcome.success,
            outcome.reason,
            outcome.evidence,
            hints=hindsight.hints,
            demonstration=hindsight.demonstration,
        )
        for turn, reward in enumerate(recorded[-1].turn_rewards):
            if reward is not None:
                yield Score(reward, reason="reward of the turn", turn=turn)
