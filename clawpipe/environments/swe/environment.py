"""`swe`: mend a fault in a repository, in a sandbox, with a shell; tests of the repository say whether it is mended.

Each episode has a sandbox with the files of the task's commit and none of its history. At the end the changes are taken as a diff
and graded in a new sandbox, see `clawpipe.environments.swe.grading`; patch and results are recorded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from clawpipe.environments.base import Answer, Hindsight, Outcome, Reason, TaskItem, Verdict
from clawpipe.environments.shell import BASH, Shell, ShellLimits
from clawpipe.environments.split import heldout, is_heldout_split, stable_hash
from clawpipe.environments.swe.grading import grade
from clawpipe.environments.swe.sources import Sources
from clawpipe.environments.swe.tasks import Task, about, paths_of, read_tasks
from clawpipe.environments.swe.workbench import RUN_TESTS, Place, Workbench
from clawpipe.errors import ConfigError, DataError
from clawpipe.json_types import JsonObject
from clawpipe.messages import Message, ToolCall, ToolSpec
from clawpipe.sandbox.base import WORK, Limits

_SYSTEM = (
    f"Mend the fault in the Python repository in {WORK}. Read and change its source with the tool {BASH.name}, and run its tests "
    "with `{python} {run_tests} -q FILE`. When it is mended, answer without a call. Changes to tests do not count."
)
SUBMITTED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"  # mini-swe-agent ends an episode by a command that writes this first
_LONGEST = 90_000  # bytes of a patch that fits into a command


class SweEnvironment:
    """Mend a fault in a repository: a shell in a sandbox, and the repository's tests as the judge.

    Args:
        tasks: file of tasks in the schema of SWE-bench, SWE-Gym or SWE-smith; JSON Lines, a JSON list, or Parquet.
        repositories: folder of their repositories; "": the folder `repositories` beside the file of tasks.
        share: of the identities that are held out, in (0, 1).
        sandbox: provider of sandboxes: bubblewrap, container, unsafe_local, or path/to/file.py:NAME.
        sandbox_options: of the provider.
        python: program in the sandbox that runs the tests.
        packages: of the environment's Python, which tests need beside pytest where the sandbox's Python has no pytest.
        pytest: arguments for pytest, such as ["-o", "addopts="].
        seconds: that a command of the policy may take.
        steps: commands of an episode.
        characters: longest output of a command that the policy reads whole.
        test_seconds: that a run of the tests, or setting up a repository, may take; less than environment.call_timeout.
        memory_mb: memory of a sandbox.
        disk_mb: size of a sandbox's working folder, in memory; twice that while an episode is graded.
    """

    name = "swe"
    kind = "swe"

    def __init__(
        self,
        tasks: str,
        repositories: str = "",
        share: float = 0.3,
        sandbox: str = "bubblewrap",
        sandbox_options: dict[str, Any] | None = None,
        python: str = "python3",
        packages: list[str] | None = None,
        pytest: list[str] | None = None,
        seconds: float = 30.0,
        steps: int = 30,
        characters: int = 4000,
        test_seconds: float = 200.0,
        memory_mb: int = 2048,
        disk_mb: int = 512,
    ) -> None:
        if not 0 < share < 1:
            raise ConfigError(f"{share} is no share of tasks", "environment.options.share", "give a number between 0 and 1")
        self._share, self._file = share, Path(tasks).expanduser()
        self._shell = ShellLimits(seconds, steps, characters)
        limits = Limits(seconds=test_seconds, memory_bytes=memory_mb << 20, disk_bytes=disk_mb << 20)
        options, more = sandbox_options or {}, tuple(packages or ())
        self._place = Place(sandbox, options, limits, python, more, test_seconds, tuple(pytest or ()))
        self._sources = Sources(Path(repositories).expanduser() if repositories else self._file.parent / "repositories")
        read = read_tasks(self._file)
        self._refused = list(read.refused.values())
        self._tasks = {task.instance_id: task for task in read.tasks if self._has_files(task)}
        if not self._tasks:
            raise DataError(f"no task of it can be tried: {about(self._refused)}", str(self._file), "see docs/swe.md")

    def tools(self) -> list[ToolSpec]:
        return [BASH]

    def preamble(self) -> list[Message]:
        return [Message("system", _SYSTEM.format(python=self._place.python, run_tests=RUN_TESTS))]

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
        return [_item(task, split, ordinal) for ordinal, task in enumerate(_ordered(there, seed)[:count])]

    def distinct_items(self, split: str) -> int:
        """Return the number of identities on a side of the split."""
        return len({task.identity for task in self._of(split)})

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
        truth = json.loads(item.truth)
        task = self._tasks.get(truth["instance_id"])
        if task is None or task.digest != truth["task"]:
            raise TaskError(f"{self._file} has no longer the task {truth['instance_id']} of this item")
        return SweEpisode(task, self._place, self._sources, self._shell)

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Outcome:
        """Return the outcome: 1 (success) if every test of the task passes, else 0. An outcome without a verdict has failed."""
        evidence = verdict.evidence if verdict else {}
        reason = _why_not(json.loads(item.truth), evidence)
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

    def _has_files(self, task: Task) -> bool:
        """Whether a task's repository is there; if it is not, its reason is noted."""
        if task.image and self._place.provider == "container":
            return True
        if reason := self._sources.why_not(task):
            self._refused.append(reason)
        return not reason

    def _of(self, split: str) -> list[Task]:
        wanted = is_heldout_split(split)
        return [task for task in self._tasks.values() if heldout(task.identity, self._share) == wanted]


class TaskError(Exception):
    """A task cannot be set up, so nobody can say how the policy did."""


class SweEpisode:
    """A shell in a sandbox with a task's repository."""

    def __init__(self, task: Task, place: Place, sources: Sources, limits: ShellLimits) -> None:
        self._task, self._place, self._sources = task, place, sources
        self._bench = Workbench(place, task.image)
        try:
            self._bench.set_up(task, sources)
        except DataError as error:
            self.close()
            raise TaskError(str(error)) from error
        self._shell = Shell(self._bench.sandbox, limits)

    def respond(self, messages: Sequence[Message]) -> Answer:
        answer = self._shell.respond(messages)
        submitted = any(message.content.lstrip().startswith(SUBMITTED) for message in answer.messages)
        return replace(answer, done=answer.done or submitted)

    def finish(self, reason: Reason) -> Verdict:
        """Grade what the policy has left.

        Raises:
            TaskError: the task cannot be set up for that.
        """
        try:
            return Verdict(grade(self._place, self._sources, self._task, self._bench.sandbox))
        except DataError as error:
            raise TaskError(str(error)) from error

    def close(self) -> None:
        with suppress(OSError):
            self._bench.close()


def _ordered(tasks: Sequence[Task], seed: int) -> list[Task]:
    laps = Counter[str]()
    places: list[tuple[int, int, Task]] = []
    for task in sorted(tasks, key=lambda task: stable_hash(f"{seed}/{task.instance_id}")):
        places.append((laps[task.identity], len(places), task))
        laps[task.identity] += 1
    return [task for *_, task in sorted(places, key=lambda place: place[:2])]


def _item(task: Task, split: str, ordinal: int) -> TaskItem:
    truth = {
        "instance_id": task.instance_id,
        "task": task.digest,
        "fail_to_pass": task.fail_to_pass,
        "pass_to_pass": len(task.pass_to_pass),
        "files": sorted(paths_of(task.patch)),
        "mending": task.mending,
    }
    return TaskItem(
        item_id=task.digest[:16],
        identity=task.identity,
        environment=SweEnvironment.name,
        kind=SweEnvironment.kind,
        split=split,
        slice=task.repo,
        messages=(Message("user", task.problem),),
        truth=json.dumps(truth, sort_keys=True),
        ordinal=ordinal,
    )


def _why_not(truth: JsonObject, evidence: JsonObject) -> str:
    """Return why recorded results are no success; "" if they are one."""
    if not evidence:
        return "no verdict"
    if "refused" in evidence:
        return str(evidence["refused"])
    if not evidence["report_is_sound"]:
        return "the report of the tests is forged"
    failing = [test for test in truth["fail_to_pass"] if evidence["fail_to_pass"].get(test) != "passed"]
    if failing:
        return f"{len(failing)} of {len(truth['fail_to_pass'])} tests still fail"
    broken = truth["pass_to_pass"] - evidence["pass_to_pass"]["passed"]
    return f"{broken} tests no longer pass" if broken else ""
