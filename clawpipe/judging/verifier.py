"""The scorer that asks the environment's verifier, and its hindsight if it has any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from clawpipe.environments.base import Environment, Hindsight, TaskItem, WithHindsight
from clawpipe.judging.base import Origin, Row, Score
from clawpipe.messages import Message


@dataclass(frozen=True)
class VerifierScorer:
    """Yields one score per trajectory of its environment, from the recorded messages alone; successes have hindsight too."""

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
        task = TaskItem.from_row(dict[str, Any](item))
        outcome, hindsight = self.environment.verify(task, messages), self._hindsight(task, messages)
        yield Score(
            outcome.value,
            outcome.success,
            outcome.reason,
            outcome.evidence,
            hints=hindsight.hints,
            demonstration=hindsight.demonstration,
        )

    def _hindsight(self, item: TaskItem, messages: Sequence[Message]) -> Hindsight:
        known = self.environment.hindsight(item, messages) if isinstance(self.environment, WithHindsight) else None
        return known or Hindsight(())
