"""Task folders as items: their files are put where the Dockerfile puts them, and their tests say how an episode went."""

from __future__ import annotations

import io
import json
import math
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Environment, Outcome, TaskItem, question_item
from clawpipe.play.environments.split import heldout, is_heldout_split, stable_hash
from clawpipe.play.environments.terminal.task_folders import TaskFolder, read_task_folders
from clawpipe.play.environments.terminal.tasks import Place
from clawpipe.play.environments.world import Needs, of_task
from clawpipe.play.sandbox.base import Limits, Result, Sandbox, get, last_reason
from clawpipe.play.sandbox.container import Program, files_of

_TESTS, _LOGS = "/tests", "/logs"
_PRINTED = 1 << 26  # bytes that the tests may write to their outputs: a build's log is no fault of the policy
_TAIL = 2000  # characters of the tests' output that are recorded
# What the policy may have put there is removed: nothing but the task's own tests is run, and nothing but what they write is read.
_CLEAR = rf"""
for place in {_TESTS} {_LOGS}; do
  find $place -type d ! -path $place -exec chmod u+rwx {{}} \;
  rm -rf $place/* $place/.[!.]* $place/..?*
  [ -z "$(ls -A $place)" ] || exit 1
done
mkdir {_LOGS}/verifier
"""
_SCRIPT = f'cd -- "$1" && {_TESTS}/test.sh'
# pytest is imported before the working folder can be: a module of the policy's with its name is not taken for it.
_MAIN = (
    "import sys; sys.path[:] = filter(None, sys.path); import pytest; sys.path.insert(0, ''); sys.exit(pytest.main(sys.argv[1:]))"
)
_PYTEST = f'cd -- "$1" && exec python3 -c "{_MAIN}" -q -p no:cacheprovider {_TESTS}'
_QUIET = {"HOME": _LOGS, "PYTHONNOUSERSITE": "1"}  # no start-up files of the policy's


class FolderTasks:
    """Tasks of a folder of task folders.

    Args:
        share: of the tasks that are held out.
        place: as the environment's options say; a task's image and its limits come before it.

    Raises:
        NotFoundError, DataError: see `read_task_folders`.
    """

    def __init__(self, root: Path, share: float, place: Place) -> None:
        self._root, self._share, self._place = root, share, place
        self._program: Program = place.options.get("program", "podman")
        tasks, self._aside = read_task_folders(root, self._program)
        self._tasks = {task.name: task for task in tasks}

    def items(self, environment: Environment, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return items, see `Environment.items`."""
        names = sorted(self._side(split), key=lambda name: stable_hash(f"{seed}/{name}"))
        if count > len(names):
            raise DataError(f"{count} {split} items wanted, {len(names)} to be had", str(self._root), "ask for fewer, or add tasks")
        return [_item(environment, split, place, self._tasks[name]) for place, name in enumerate(names[:count])]

    def distinct_items(self, split: str) -> int:
        return len(self._side(split))

    def warnings(self) -> list[str]:
        return [f"the task {name} is set aside: {why}" for name, why in self._aside.items()]

    def place(self, truth: JsonObject) -> Place:
        task, given = self._task(truth), self._place
        sandbox = "container" if task.image else given.sandbox
        is_same = sandbox == given.sandbox
        options = {name: value for name, value in given.options.items() if is_same or name == "paths"}
        if task.image:
            options["image"] = task.image.id
        options["folders"] = [*task.writable, _TESTS, _LOGS]
        variables = {**task.world.variables, **task.own_variables}
        return Place(sandbox, _limits(task, given), options, task.world.folder, variables, bool(task.image))

    def begin(self, sandbox: Sandbox, truth: JsonObject) -> None:
        task = self._task(truth)
        if task.image:
            for folder in task.writable:
                with of_task(is_tasks_own=True):
                    files = files_of(task.image.id, folder, self._program)
                _unpack(sandbox, folder, files)
        if task.plain:
            _require(sandbox.exec(["mkdir", "-p", *task.plain.folders]), task.name)
            _unpack(sandbox, "/", _packed(task.plain.files))

    def progress(self, sandbox: Sandbox, truth: JsonObject) -> None:
        return None

    def evidence(self, sandbox: Sandbox, truth: JsonObject, needs: Needs) -> JsonObject:
        """Put the task's tests in place, run them, and return what they wrote. Raises TaskTimeoutError."""
        task = self._task(truth)
        if sandbox.exec(_CLEAR).code != 0:
            return _unrewarded("the policy's files in /tests or /logs cannot be removed")
        try:
            _unpack(sandbox, "/", _packed({f"/{name}": file for name, file in task.tests.items()}, executable=True))
        except DataError as error:  # of what the policy has left: it is the policy that has failed
            return _unrewarded(error.what)
        place, script = self.place(truth), _SCRIPT if task.has_script else _PYTEST
        variables = {**place.variables, **task.variables, **_QUIET}
        seconds = min(task.seconds, needs.seconds)
        argv = ["/bin/sh", "-c", script, "tests", place.folder]
        done = sandbox.exec(argv, seconds=seconds, env=variables, output_bytes=_PRINTED)
        needs.require_in_time(done.ended, task.seconds)
        sandbox.end_processes()  # whatever the tests have started: nothing writes a reward after them
        rewards = _rewards(sandbox)
        if not rewards and not task.has_script and done.code in (0, 1):
            rewards = {"reward": float(done.code == 0)}
        return {"rewards": rewards, "code": done.code, "ended": done.ended, "output": done.text[-_TAIL:]}

    def judge(self, truth: JsonObject, evidence: JsonObject) -> Outcome:
        """Return the outcome: the reward, within 0 and 1, or the mean of several; 0 where the tests wrote none, or others."""
        rewards = evidence["rewards"]
        if not rewards:
            why = evidence["ended"] or f"exit code {evidence['code']}"
            return Outcome(0.0, False, f"its tests wrote no reward ({why})", evidence)
        strange = [f"{name} {one:g}" for name, one in rewards.items() if not 0 <= one <= 1]
        if strange and "reward" not in rewards:  # a number of tests, say
            return Outcome(0.0, False, f"its tests wrote {strange[0]}, which is no reward from 0 to 1", evidence)
        value = rewards["reward"] if "reward" in rewards else sum(rewards.values()) / len(rewards)
        return Outcome(min(max(value, 0.0), 1.0), value >= 1.0, "what its tests say", evidence)

    def solution(self, truth: JsonObject) -> Sequence[str]:
        script = self._task(truth).solution
        return [script] if script else []

    def _side(self, split: str) -> list[str]:
        wanted = is_heldout_split(split)
        return [name for name in self._tasks if heldout(name, self._share) == wanted]

    def _task(self, truth: JsonObject) -> TaskFolder:
        task = self._tasks.get(truth["task"])
        if task is None or task.digest != truth["digest"]:
            what = "is not there any more" if task is None else "has changed since its item was made"
            raise ConfigError(f"the task {truth['task']} {what}", str(self._root), "run the night anew, under another label")
        return task


def _unrewarded(why: str) -> JsonObject:
    """Return the evidence of an episode whose tests could not be run."""
    return {"rewards": {}, "code": None, "ended": why, "output": ""}


def _item(environment: Environment, split: str, place: int, task: TaskFolder) -> TaskItem:
    truth = {"task": task.name, "digest": task.digest}
    return question_item(environment, split, place, identity=task.name, part=task.part, question=task.instruction, truth=truth)


def _limits(task: TaskFolder, place: Place) -> Limits:
    return Limits(
        seconds=place.limits.seconds,
        memory_bytes=(task.memory_mb or 0) << 20 or place.limits.memory_bytes,
        disk_bytes=min((task.storage_mb or 0) << 20, 1 << 30) or place.limits.disk_bytes,
    )


def _packed(files: Mapping[str, Path], *, executable: bool = False) -> bytes:
    """Return files as a tar archive, by their absolute paths."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path, file in files.items():
            content = file.read_bytes()
            header = tarfile.TarInfo(path.lstrip("/"))
            header.size, header.mode = len(content), 0o755 if executable or file.stat().st_mode & 0o100 else 0o644
            archive.addfile(header, io.BytesIO(content))
    return data.getvalue()


def _unpack(sandbox: Sandbox, folder: str, archive: bytes) -> None:
    done = sandbox.exec(["tar", "-o", "-C", folder, "-xf", "-"], stdin=archive, seconds=60.0)  # -o: as its own user's, in any tar
    _require(done, folder)


def _require(done: Result, what: str) -> None:
    if done.code != 0:
        why = done.ended or last_reason(done.stdout + done.stderr)
        raise DataError(f"its files cannot be put into the sandbox: {why}", what, "look at their size (environment.storage_mb)")


def _rewards(sandbox: Sandbox) -> dict[str, float]:
    """Return the numbers that tests have written; none where there is no such file, or it holds no finite numbers."""
    with suppress(DataError, ValueError):
        return _numbers({"reward": float(get(sandbox, f"{_LOGS}/verifier/reward.txt", 1 << 16))})
    with suppress(DataError, ValueError, RecursionError):
        return _numbers(json.loads(get(sandbox, f"{_LOGS}/verifier/reward.json", 1 << 16)))
    return {}


def _numbers(told: Any) -> dict[str, float]:
    found = told if isinstance(told, dict) else {"reward": told}
    return {str(name): float(one) for name, one in found.items() if isinstance(one, int | float) and math.isfinite(one)}
