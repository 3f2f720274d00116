"""What an environment of tasks in a shell asks of its tasks, whoever made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.play.environments.base import Environment, Outcome, TaskItem
from clawpipe.play.environments.world import Needs, of_task
from clawpipe.play.sandbox.base import Limits, Sandbox, open_sandbox


@dataclass(frozen=True)
class Place:
    """Where a task is done.

    Attributes:
        sandbox: the provider's name.
        folder: in which commands start; ".": where the sandbox starts them.
        variables: of the commands.
        is_tasks_own: whether it is the task that names an image: one that does not start is a fault of that task.
    """

    sandbox: str
    limits: Limits
    options: Mapping[str, Any]
    folder: str = "."
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    is_tasks_own: bool = False

    def open(self, needs: Needs) -> Sandbox:
        """Start a sandbox. Raises as `open_sandbox`, and a TaskError where the task's own does not start."""
        with of_task(self.is_tasks_own):
            return open_sandbox(self.sandbox, needs.bounded(self.limits), needs.options(self.sandbox, self.options))


class Tasks(Protocol):
    """Tasks in a shell. A truth is that of an item, as JSON."""

    def items(self, environment: Environment, split: str, count: int, seed: int) -> list[TaskItem]: ...

    def distinct_items(self, split: str) -> int: ...

    def warnings(self) -> list[str]: ...

    def place(self, truth: JsonObject) -> Place: ...

    def begin(self, sandbox: Sandbox, truth: JsonObject) -> None:
        """Put in place what the task begins with."""
        ...

    def progress(self, sandbox: Sandbox, truth: JsonObject) -> float | None:
        """Return how much of the task is done, from 0 to 1; None where that is known at its end alone."""
        ...

    def evidence(self, sandbox: Sandbox, truth: JsonObject, needs: Needs) -> JsonObject:
        """Return what the sandbox says at the end, when nothing runs any more.

        Raises:
            TaskTimeoutError: tests take longer than they may.
        """
        ...

    def judge(self, truth: JsonObject, evidence: JsonObject) -> Outcome:
        """Return the outcome, from what is recorded alone."""
        ...

    def solution(self, truth: JsonObject) -> Sequence[str]:
        """Return commands that do the task; none where nobody knows them."""
        ...
