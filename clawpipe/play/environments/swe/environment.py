"""`swe`: mend a fault in a repository, in a sandbox, with a shell; tests of the repository say whether it is mended.

Each episode has a sandbox with the files of the task's commit and none of its history. At the end the changes are taken as a diff
and graded in a new sandbox, see `clawpipe.play.environments.swe.grading`; patch and results are recorded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from clawpipe.core.basics.json_types import Options
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.core.store.plain_digests import sha256_plain
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Hindsight, Outcome, TaskItem, Verdict
from clawpipe.play.environments.shell import BASH, ShellLimits
from clawpipe.play.environments.split import heldout, is_heldout_split, stable_hash
from clawpipe.play.environments.swe.episode import SweEpisode
from clawpipe.play.environments.swe.grading import why_not
from clawpipe.play.environments.swe.patches import paths_of
from clawpipe.play.environments.swe.sources import Sources
from clawpipe.play.environments.swe.tasks import Task, about, read_tasks
from clawpipe.play.environments.swe.workbench import Place
from clawpipe.play.environments.world import NOTHING, Needs, TaskError
from clawpipe.play.sandbox.base import WORK, Limits, require_sandbox
from clawpipe.play.sandbox.container import image_of

_SYSTEM = (
    f"Mend the fault in the Python repository in {WORK}. Read and change its source with the tool {BASH.name}, and run its tests "
    "with `{python} -m pytest -q FILE`. When it is mended, answer without a call. Changes to tests do not count."
)
_LONGEST = 90_000  # bytes of a patch that fits into a command


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tasks: str = Field(description="file of tasks of SWE-bench, SWE-Gym or SWE-smith: JSON Lines, a JSON list, or Parquet")
    repositories: str = Field(default="", description="folder of repositories; none: `repositories` beside the file of tasks")
    share: float = Field(default=0.3, gt=0, lt=1, description="of the identities that are held out, by their hash")
    sandbox: str = Field(default="bubblewrap", description="bubblewrap, container, or path/to/file.py:NAME")
    sandbox_options: dict[str, Any] = Field(default_factory=dict, description="arguments of the sandbox, such as an image")
    python: str = Field(default="python3", description="program in the sandbox that runs the tests")
    packages: tuple[str, ...] = Field(
        default=(), description="of clawpipe's Python, put beside pytest into a sandbox without pytest"
    )
    pytest: tuple[str, ...] = Field(default=(), description="arguments for pytest, such as -o addopts=")
    max_steps: int = Field(default=30, ge=1, description="most commands of an episode")
    command_seconds: float = Field(default=30.0, gt=0, description="most time of a command", json_schema_extra={"unit": "s"})
    max_characters: int = Field(default=4000, ge=2, description="of a command's output; of a longer one, head and tail are shown")
    test_seconds: float = Field(
        default=200.0,
        gt=0,
        description="most time of a run of the tests, and of setting up a repository; less than environment.call_timeout",
        json_schema_extra={"unit": "s"},
    )
    memory_mb: int = Field(default=2048, ge=64, description="memory of a sandbox", json_schema_extra={"unit": "MiB"})
    disk_mb: int = Field(
        default=512, ge=8, description="size of its folders, which lie in memory", json_schema_extra={"unit": "MiB"}
    )

    @field_validator("sandbox")
    @classmethod
    def _has_places_of_its_own(cls, name: str) -> str:
        if name == "unsafe_local":
            raise ValueError("unsafe_local has no folders of its own, in which tests could be kept from an agent")
        return name

    @property
    def file(self) -> Path:
        """The file of tasks."""
        return Path(self.tasks).expanduser()

    @property
    def folder(self) -> Path:
        """The folder of repositories."""
        return Path(self.repositories).expanduser() if self.repositories else self.file.parent / "repositories"

    @property
    def place(self) -> Place:
        """Where repositories are tried."""
        limits = Limits(seconds=self.test_seconds, memory_bytes=self.memory_mb << 20, disk_bytes=self.disk_mb << 20)
        return Place(self.sandbox, self.sandbox_options, limits, self.python, self.packages, self.test_seconds, self.pytest)


class SweEnvironment:
    """Mend a fault in a repository: a shell in a sandbox, and the repository's tests as the judge.

    Args:
        config: its options.
    """

    name = "swe"
    kind = "swe"
    Config = Config

    def __init__(self, config: Config) -> None:
        self._share, self._file = config.share, config.file
        self._shell = ShellLimits(config.command_seconds, config.max_steps, config.max_characters)
        self._place = config.place
        own = {"image": ""} if config.sandbox == "container" else {}  # that of a task
        require_sandbox(config.sandbox, own | config.sandbox_options)
        self._sources = Sources(config.folder)
        read = read_tasks(self._file)
        self._images = dict[str, str]()
        self._refused = list(read.refused.values())
        self._tasks = {task.instance_id: task for task in read.tasks if self._has_files(task)}
        if not self._tasks:
            raise DataError(f"no task of it can be tried: {about(self._refused)}", str(self._file), "see docs/swe.md")

    @staticmethod
    def inputs_digest(options: Options) -> str:
        """Return the digest of what the tasks name and their file does not hold: commits, folders of files, images.

        Raises:
            NotFoundError, DataError: there is no such file, or it has no task.
        """
        config = Config.model_validate(options)
        place, sources = config.place, Sources(config.folder)
        return sha256_plain([[task.instance_id, _state(task, place, sources)] for task in read_tasks(config.file).tasks])

    def tools(self) -> list[ToolSpec]:
        return [BASH]

    def preamble(self) -> list[Message]:
        return [Message("system", _SYSTEM.format(python=self._place.python))]

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return `count` tasks of a split, in an order that the seed decides: one of each identity, then a second one of each.

        Raises:
            ConfigError: no such split.
            DataError: there are fewer.
        """
        there = self._of(split)
        if count > len(there):
            setting = "train_items" if split == "train" else "heldout_items"
            what = f"{count} {split} items wanted, the file has {len(there)}"
            raise DataError(what, str(self._file), f"set environment.{setting} to {len(there)} or less, or add tasks")
        return [self._item(task, split, ordinal) for ordinal, task in enumerate(_ordered(there, seed)[:count])]

    def distinct_items(self, split: str) -> int:
        """Return the number of identities on a side of the split."""
        return len({task.identity for task in self._of(split)})

    def number_of_items(self, split: str) -> int:
        """Return the number of tasks on a side of the split, of which several may share an identity."""
        return len(self._of(split))

    def warnings(self) -> list[str]:
        """Return a sentence about the rows that were set aside, if there are any."""
        if not self._refused:
            return []
        return [f"{self._file}: {len(self._refused)} rows are no tasks and were set aside ({about(self._refused)})"]

    def start(self, item: TaskItem) -> SweEpisode:
        """Begin an episode in a sandbox of its own.

        Raises:
            TaskError: the task cannot be set up.
        """
        return self.open(item, NOTHING)

    def open(self, item: TaskItem, needs: Needs) -> SweEpisode:
        """Begin an episode in a sandbox that has what a program needs. Raises as `start`."""
        truth = json.loads(item.truth)
        task = self._tasks.get(truth["instance_id"])
        if task is None or task.digest != truth["task"]:
            raise TaskError(f"{self._file} has no longer the task {truth['instance_id']} of this item")
        return SweEpisode(task, self._place, needs, self._sources, self._shell)

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Outcome:
        """Return the outcome: 1 (success) if every test of the task passes, else 0. An outcome without a verdict has failed."""
        evidence = verdict.evidence if verdict else {}
        reason = why_not(json.loads(item.truth), evidence)
        facts = {name: value for name, value in evidence.items() if name != "patch"}
        return Outcome(float(not reason), not reason, reason or "every test passes", facts)

    def hindsight(self, item: TaskItem, messages: Sequence[Message]) -> Hindsight | None:
        """Return where the fault is, and the patch that mends it as a demonstration; None if that is too long for a command."""
        truth = json.loads(item.truth)
        if len(truth["mending"].encode()) > _LONGEST:
            return None
        call = ToolCall("call_hindsight", BASH.name, json.dumps({"command": truth["mending"]}))
        shown = (
            Message("assistant", "", (call,)),
            Message("tool", "[exit code 0]", tool_call_id=call.id, name=call.name),
            Message("assistant", "The fault is mended."),
        )
        return Hindsight((f"The fault is in {', '.join(truth['files'])}.",), shown)

    def _item(self, task: Task, split: str, ordinal: int) -> TaskItem:
        truth = {
            "instance_id": task.instance_id,
            "task": task.digest,
            "image": self._images.get(self._place.image(task)),
            "fail_to_pass": task.fail_to_pass,
            "pass_to_pass": len(task.pass_to_pass),
            "files": sorted(paths_of(task.patch)),
            "mending": task.mending,
        }
        return TaskItem(
            item_id=task.digest[:16],
            identity=task.identity,
            environment=self.name,
            kind=self.kind,
            split=split,
            slice=task.repo,
            messages=(Message("user", task.problem),),
            truth=json.dumps(truth, sort_keys=True),
            ordinal=ordinal,
        )

    def _has_files(self, task: Task) -> bool:
        """Whether a task's repository is there; if it is not, its reason is noted."""
        image = self._place.image(task)
        reason = self._noted(image) if image else self._sources.why_not(task)
        if reason:
            self._refused.append(reason)
        return not reason

    def _noted(self, image: str) -> str:
        """Note the id of an image, which its tasks' items hold; return why there is none."""
        try:
            self._images[image] = self._images.get(image) or _image_id(image, self._place)
        except ConfigError as error:
            return f"{error.what}: {image}"
        return ""

    def _of(self, split: str) -> list[Task]:
        wanted = is_heldout_split(split)
        return [task for task in self._tasks.values() if heldout(task.identity, self._share) == wanted]


def _image_id(image: str, place: Place) -> str:
    return image_of(image, place.options.get("program", "podman")).id


def _state(task: Task, place: Place, sources: Sources) -> str:
    """Return what names a task's files, wherever they lie; "" where there are none, and the task is set aside."""
    with suppress(ConfigError, DataError):
        return _image_id(image, place) if (image := place.image(task)) else sources.state(task)
    return ""


def _ordered(tasks: Sequence[Task], seed: int) -> list[Task]:
    laps = Counter[str]()
    places: list[tuple[int, int, Task]] = []
    for task in sorted(tasks, key=lambda task: stable_hash(f"{seed}/{task.instance_id}")):
        places.append((laps[task.identity], len(places), task))
        laps[task.identity] += 1
    return [task for *_, task in sorted(places, key=lambda place: place[:2])]
