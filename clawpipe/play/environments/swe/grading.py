"""Grade what an agent left: take its changes as a diff, put the task's tests back, and run them in a new sandbox.

Nothing that the agent has left runs before its changes are known, and of these the ones to tests, to settings of pytest and to what
Python runs by itself do not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import DataError
from clawpipe.play.environments.swe.patches import paths_of
from clawpipe.play.environments.swe.reports import statuses
from clawpipe.play.environments.swe.sources import Sources
from clawpipe.play.environments.swe.tasks import Task
from clawpipe.play.environments.swe.workbench import Place, TestRun, Workbench, existing
from clawpipe.play.sandbox.base import Sandbox, snapshot

_AGENTS = "/tmp/agent"  # in the new sandbox: the files that the agent left
_MOST = 1 << 20  # bytes of a patch
_SHOWN = 1000  # characters of what was written where no test ran
_TOLD = 200  # of these, in a reason
_TEST_FILE = re.compile(r"(test_.*|.*_test|tests?|conftest)\.py")
_TEST_FOLDERS = {"test", "tests", "testing"}
_STEERING = {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml"}
_STARTED = {"sitecustomize.py", "usercustomize.py"}
_INDEX = """
set -e
tar -C "$1" --exclude=./.git -xf - --no-same-owner
git --git-dir=/workspace/.git --work-tree="$1" add -A
"""
_DIFF = "exec git -c core.quotePath=true diff --cached --binary --no-renames --no-ext-diff --no-textconv --no-color HEAD"
_NAMES = "exec git diff --cached --no-renames --name-only -z HEAD"
_LEAVE_OUT = "GIT_LITERAL_PATHSPECS=1 exec git reset -q --pathspec-from-file=- --pathspec-file-nul"
_UNINDEX = 'rm -rf "$1"; exec git reset -q'


@dataclass(frozen=True)
class Change:
    """What an agent changed.

    Attributes:
        patch: all of it, as text.
        counted: the part that is graded, as git wrote it.
        left_out: paths whose changes do not count.
    """

    patch: str
    counted: bytes
    left_out: tuple[str, ...]


def grade(place: Place, sources: Sources, task: Task, agents: Sandbox) -> JsonObject:
    """Return the evidence of an episode: the patch, and what became of each test of the task.

    Raises:
        DataError: the task itself cannot be set up.
    """
    agents.end_processes()
    try:
        left = snapshot(agents, place.limits.disk_bytes)
    except DataError as error:
        return {"patch": "", "refused": error.what}
    finally:
        agents.close()
    with Workbench(place, place.image(task)) as bench:
        bench.set_up(task, sources)
        return _graded(bench, task, left)


def _graded(bench: Workbench, task: Task, left: bytes) -> JsonObject:
    """Return the evidence of what an agent left. What it made impossible to read or to apply is refused."""
    try:
        change = change_of(bench, task, left)
    except DataError as error:
        return {"patch": "", "refused": error.what}
    if len(change.patch) > _MOST:
        return {"patch": "", "refused": f"the patch has more than {_MOST >> 20} MiB"}
    facts = {"patch": change.patch, "left_out": list(change.left_out)}
    if not change.counted:  # its tests fail, as they did; a policy that mends nothing costs no run of them
        return facts | {"refused": "nothing was changed that counts"}
    if task.test_patch:
        bench.apply(task.test_patch.encode())
    try:
        bench.apply(change.counted)
    except DataError:
        return facts | {"refused": "the patch does not fit beside the task's tests"}
    return facts | results_of(task, tested(bench, task, change.patch))


def tested(bench: Workbench, task: Task, secret: str) -> TestRun:
    """Run the task's tests."""
    files = existing(bench.sandbox, task.test_files)
    return bench.run_tests(files, f"{task.digest} {secret}") if files else TestRun()


def change_of(bench: Workbench, task: Task, left: bytes) -> Change:
    """Return what differs between a task's repository, which lies in the workbench, and the files that an agent left.

    Raises:
        DataError: the files cannot be read.
    """
    bench.require(f"mkdir {_AGENTS}")
    bench.require(_INDEX, _AGENTS, stdin=left)
    patch = bench.require(_DIFF)
    names = bench.require(_NAMES).split(b"\0")[:-1]
    left_out = [name for name in names if is_kept(_text(name), task)]
    if left_out:
        bench.require(_LEAVE_OUT, stdin=b"".join(name + b"\0" for name in left_out))
    counted = bench.require(_DIFF) if left_out else patch
    bench.require(_UNINDEX, _AGENTS)
    return Change(_text(patch), counted, tuple(map(_text, left_out)))


def is_kept(path: str, task: Task) -> bool:
    """Whether a path stays as the task has it, whatever an agent changed: tests, what steers pytest, and what Python runs by
    itself. What the patch that mends the fault changes may be changed."""
    if path in paths_of(task.test_patch) or path in task.test_files:
        return True
    if path in paths_of(task.patch):
        return False
    *folders, name = PurePosixPath(path).parts
    metadata = any(part.endswith((".egg-info", ".dist-info")) for part in folders)
    if metadata or name in _STEERING or name in _STARTED or name.endswith(".pth"):
        return True
    return bool(_TEST_FILE.fullmatch(name)) or not _TEST_FOLDERS.isdisjoint(folders)


def results_of(task: Task, run: TestRun) -> JsonObject:
    """Return what is recorded of a run: of the tests that were to go on passing, the number of those that do, and the others. Where
    none ran, what was said instead: a missing package, say."""
    passing = statuses(task.pass_to_pass, run.report)
    broken = {test: status for test, status in passing.items() if status != "passed"}
    return {
        "fail_to_pass": statuses(task.fail_to_pass, run.report),
        "pass_to_pass": {"passed": len(passing) - len(broken), "not_passed": broken},
        "ended": run.ended,
        "report_is_sound": run.sound,
    } | ({} if run.report else {"said": run.said.strip()[-_SHOWN:]})


def why_not(truth: JsonObject, evidence: JsonObject) -> str:
    """Return why recorded results are no success; "" if they are one."""
    if not evidence:
        return "no verdict"
    if "refused" in evidence:
        return str(evidence["refused"])
    if not evidence["report_is_sound"]:
        return "the report of the tests cannot be believed"
    why = _why_none(evidence)
    failing = [test for test in truth["fail_to_pass"] if evidence["fail_to_pass"].get(test) != "passed"]
    if failing:
        return f"{len(failing)} of {len(truth['fail_to_pass'])} tests still fail{why}"
    broken = truth["pass_to_pass"] - evidence["pass_to_pass"]["passed"]
    return f"{broken} tests no longer pass{why}" if broken else ""


def _why_none(evidence: JsonObject) -> str:
    """Return why there are no results of a run; "" if it came to its end."""
    if evidence.get("ended"):
        return f": their run was ended ({evidence['ended']})"
    said = str(evidence.get("said") or "").splitlines()
    return f": none ran ({said[-1].strip()[:_TOLD]})" if said else ""


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
