"""The environment `terminal`: a task, a shell in a sandbox, and what lies in the sandbox when the episode ends.

user       Count the lines of amber-falcon.txt and write the number into answer.txt.
assistant  bash(command="wc -l < amber-falcon.txt > answer.txt")
tool       [exit code 0]
assistant  Done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.core.store.plain_digests import sha256_plain
from clawpipe.play.environments.base import Answer, Hindsight, Outcome, Reason, TaskItem, Verdict
from clawpipe.play.environments.shell import BASH, Shell, ShellLimits
from clawpipe.play.environments.terminal.folder_tasks import FolderTasks
from clawpipe.play.environments.terminal.generated import GeneratedTasks
from clawpipe.play.environments.terminal.task_folders import read_task_folders
from clawpipe.play.environments.terminal.tasks import Place, Tasks
from clawpipe.play.environments.world import NOTHING, Needs, Site
from clawpipe.play.sandbox.base import Limits, Sandbox, require_sandbox
from clawpipe.play.sandbox.container import image_of

_SYSTEM = "Do the task in the shell, with the tool bash. Say done when it is done."


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = Field(default="", description="folder of task folders in Harbor's form; none: generated tasks")
    share: float = Field(default=0.5, gt=0, lt=1, description="of the task folders that are held out, by hash of their names")
    families: tuple[str, ...] = Field(
        default=(), description="families of generated tasks; none: all", json_schema_extra={"locked": False}
    )
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
        self._tasks = _tasks_of(config)

    @staticmethod
    def inputs_digest(options: Options) -> str:
        """Return the digest of the task folders that options name, or of the image that generated tasks are done in; "": neither.

        Raises:
            NotFoundError, DataError, ConfigError: it is not there.
        """
        given = dict(options.get("sandbox_options") or {})
        program = given.get("program", "podman")
        if options.get("folder"):
            tasks, aside = read_task_folders(Path(options["folder"]).expanduser(), program)
            return sha256_plain([[[task.name, task.digest] for task in tasks], aside])
        return image_of(given["image"], program).id if "image" in given else ""

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
        return self.open(item, NOTHING)

    def open(self, item: TaskItem, needs: Needs) -> TerminalEpisode:
        """Begin an episode in a sandbox that has what a program needs. Raises as `start`."""
        config, truth = self.config, json.loads(item.truth)
        place = self._tasks.place(truth)
        sandbox = place.open(needs)
        with _closed_on_error(sandbox):
            self._tasks.begin(sandbox, truth)
            limits = ShellLimits(config.command_seconds, config.max_steps, config.max_characters)
            return TerminalEpisode(self._tasks, truth, sandbox, place, limits, config.step_rewards, needs)

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Outcome:
        """Return the outcome from what the sandbox said at the end; an episode without a verdict has failed."""
        if verdict is None:
            return Outcome(0.0, False, "nothing is known of its end", {})
        return self._tasks.judge(json.loads(item.truth), verdict.evidence)

    def hindsight(self, item: TaskItem, messages: Sequence[Message]) -> Hindsight | None:
        """Return the solution's commands as a hint, and as the dialogue in which they do the task."""
        if not (commands := self._tasks.solution(json.loads(item.truth))):
            return None
        hint = f"Run {' and then '.join(f'`{command}`' for command in commands)}."
        return Hindsight((hint,), tuple(_dialogue(commands)))


class TerminalEpisode:
    """An episode: the policy's commands run in its sandbox, until it calls nothing or has no steps left.

    Args:
        rewarded: whether the reward of a turn is what it gained of the task.
        needs: what bounds the task's tests.
    """

    def __init__(
        self,
        tasks: Tasks,
        truth: JsonObject,
        sandbox: Sandbox,
        place: Place,
        limits: ShellLimits,
        rewarded: bool,
        needs: Needs = NOTHING,
    ) -> None:
        self._tasks, self._truth, self._sandbox, self._place = tasks, truth, sandbox, place
        self._shell = Shell(sandbox, limits, place.folder, place.variables)
        self._done = tasks.progress(sandbox, truth) if rewarded else None
        self._needs, self._is_a_programs = needs, False

    def site(self) -> Site:
        self._is_a_programs = True
        return Site.of_task(self._sandbox, self._place.sandbox, self._place.folder, self._place.variables)

    def respond(self, messages: Sequence[Message]) -> Answer:
        answer = self._shell.respond(messages)
        if self._done is None or not answer.messages:
            return answer
        before, self._done = self._done, self._tasks.progress(self._sandbox, self._truth) or 0.0
        return replace(answer, reward=self._done - before)

    def finish(self, reason: Reason) -> Verdict:
        """End what still runs, and take down what the sandbox says of the task. Commands of a program are nobody's to count."""
        self._sandbox.end_processes()
        steps = {} if self._is_a_programs else {"steps": self._shell.steps}
        return Verdict(self._tasks.evidence(self._sandbox, self._truth, self._needs) | steps)

    def close(self) -> None:
        self._sandbox.close()


def _tasks_of(config: Config) -> Tasks:
    own = {"image": ""} if config.folder and config.sandbox == "container" else {}  # that of a task
    require_sandbox(config.sandbox, own | config.sandbox_options)
    place = Place(config.sandbox, Limits(seconds=config.command_seconds), config.sandbox_options)
    if config.folder:
        return FolderTasks(Path(config.folder).expanduser(), config.share, place)
    return GeneratedTasks(config.families, config.untrained, place)


def _dialogue(commands: Sequence[str]) -> Iterator[Message]:
    """Yield the turns of a solution, as if its commands wrote nothing; rows of demonstrations have what they do write."""
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
