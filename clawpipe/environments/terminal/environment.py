"""The environment `terminal`: a task, a shell in a sandbox, and what lies in the sandbox when the episode ends.

user       Count the lines of amber-falcon.txt and write the number into answer.txt.
assistant  bash(command="wc -l < amber-falcon.txt > answer.txt")
tool       [exit code 0]
assistant  Done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.environments.base import Answer, Hindsight, Outcome, Reason, TaskItem, Verdict
from clawpipe.environments.shell import BASH, Shell, ShellLimits
from clawpipe.environments.terminal import generated
from clawpipe.environments.terminal.generated import GeneratedTasks, task_of
from clawpipe.json_types import JsonObject
from clawpipe.messages import Message, ToolCall, ToolSpec
from clawpipe.sandbox.base import Limits, Sandbox, open_sandbox

_SYSTEM = "Do the task in the shell, with the tool bash. Say done when it is done."


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    families: tuple[str, ...] = Field(default=(), description="families of generated tasks; none: all")
    untrained: tuple[str, ...] = Field(default=(), description="families that are held out, and never trained on")
    sandbox: str = Field(default="bubblewrap", description="bubblewrap, container, unsafe_local, or path/to/file.py:NAME")
    sandbox_options: dict[str, Any] = Field(default_factory=dict, description="arguments of the sandbox, such as an image")
    max_steps: int = Field(default=8, ge=1, description="most commands of an episode")
    command_seconds: float = Field(default=10.0, gt=0, description="most time of a command", json_schema_extra={"unit": "s"})
    max_characters: int = Field(default=2000, ge=2, description="of a command's output; of a longer one, head and tail are shown")
    step_rewards: bool = Field(default=True, description="whether a turn's reward is what it gained of the task")


class TerminalEnvironment:
    """Do a task with commands in a sandbox; what lies there in the end decides.

    Args:
        config: its options.
    """

    name = "terminal"
    kind = "terminal"
    Config = Config

    def __init__(self, config: Config) -> None:
        self.config = config
        self._tasks = GeneratedTasks(config.families, config.untrained)

    def tools(self) -> list[ToolSpec]:
        return [BASH]

    def preamble(self) -> list[Message]:
        return [Message("system", _SYSTEM)]

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        return self._tasks.items(self, split, count, seed)

    def distinct_items(self, split: str) -> int:
        return self._tasks.distinct_items(split)

    def warnings(self) -> list[str]:
        return self._tasks.warnings()

    def start(self, item: TaskItem) -> TerminalEpisode:
        """Begin an episode in a sandbox of its own.

        Raises:
            ConfigError: the sandbox does not start on this machine; says what to set.
        """
        config, truth = self.config, json.loads(item.truth)
        sandbox = open_sandbox(config.sandbox, Limits(seconds=config.command_seconds), config.sandbox_options)
        with _closed_on_error(sandbox):
            generated.begin(sandbox, truth)
        shell = Shell(sandbox, ShellLimits(config.command_seconds, config.max_steps, config.max_characters))
        progress = (lambda: generated.judge(truth, generated.state(sandbox, truth)).value) if config.step_rewards else None
        return TerminalEpisode(sandbox, shell, truth, progress)

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Outcome:
        """Return the outcome from what lay in the sandbox at the end; an episode without a verdict has failed."""
        if verdict is None:
            return Outcome(0.0, False, "nothing is known of its end", {})
        return generated.judge(json.loads(item.truth), verdict.evidence["files"])

    def hindsight(self, item: TaskItem, messages: Sequence[Message]) -> Hindsight:
        """Return the solution's commands as a hint, and as the dialogue in which they do the task."""
        commands = task_of(json.loads(item.truth)).solution
        hint = f"Run {' and then '.join(f'`{command}`' for command in commands)}."
        return Hindsight((hint,), tuple(_dialogue(commands)))


class TerminalEpisode:
    """An episode: the policy's commands run in its sandbox, until it calls nothing or has no steps left.

    Args:
        progress: returns how much of the task is done, from 0 to 1; None: turns have no reward.
    """

    def __init__(self, sandbox: Sandbox, shell: Shell, truth: JsonObject, progress: Callable[[], float] | None) -> None:
        self._sandbox, self._shell, self._truth, self._progress = sandbox, shell, truth, progress
        self._done = progress() if progress else 0.0

    def respond(self, messages: Sequence[Message]) -> Answer:
        answer = self._shell.respond(messages)
        if not self._progress or not answer.messages:
            return answer
        before, self._done = self._done, self._progress()
        return replace(answer, reward=self._done - before)

    def finish(self, reason: Reason) -> Verdict:
        """End what still runs, and take down what lies at the paths that count."""
        self._sandbox.end_processes()
        return Verdict({"files": dict(generated.state(self._sandbox, self._truth)), "steps": self._shell.steps})

    def close(self) -> None:
        self._sandbox.close()


def _dialogue(commands: Sequence[str]) -> Iterator[Message]:
    """Yield the turns of a solution, whose commands write nothing."""
    for number, command in enumerate(commands):
        call = ToolCall(f"call_{number}", BASH.name, json.dumps({"command": command}))
        yield Message("assistant", "", (call,))
        yield Message("tool", "[exit code 0]", tool_call_id=call.id, name=BASH.name)
    yield Message("assistant", "Done.")


@contextmanager
def _closed_on_error(sandbox: Sandbox) -> Iterator[None]:
    try:
        yield
    except BaseException:
        sandbox.close()
        raise
