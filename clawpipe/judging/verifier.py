"""The environment's own verdict as a score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clawpipe.environments.base import Environment, TaskItem
from clawpipe.judging.base import Origin, Row, Score
from clawpipe.messages import Message


@dataclass(frozen=True)
class VerifierScorer:
    """One score a trajectory of its environment, from the recorded messages alone."""

    environment: Environment

    @property
    def name(self) -> str:
        return f"verifier/{self.environment.name}"

    @property
    def origin(self) -> Origin:
        return "verifier"

    def score(self, item: Row, trajectory: Row) -> Iterator[Score]:
        if item["environment"] != self.environment.name:
            return
        messages = [Message.from_dict(message) for message in trajectory["messages"]]
        outcome = self.environment.verify(TaskItem.from_row(dict[str, Any](item)), messages)
        yield Score(outcome.value, outcome.success, outcome.reason, outcome.evidence)
