"""A sandbox with a task's repository and pytest in it."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from clawpipe.errors import DataError
from clawpipe.play.environments.swe.names import Key, key_of
from clawpipe.play.environments.swe.packages import archive_of
from clawpipe.play.environments.swe.reports import Status, read_report
from clawpipe.play.environments.swe.sources import Sources
from clawpipe.play.environments.swe.tasks import Task
from clawpipe.play.environments.world import Needs, of_task
from clawpipe.play.sandbox.base import WORK, Excess, Limits, Result, Sandbox, get, last_reason, open_sandbox, put, restore

TOOLS = "/tmp/tools"  # in the sandbox, beside the repository
_RUN_TESTS = f"{TOOLS}/run_tests.py"
_REPORT = "/tmp/report.xml"
_IMAGE_FOLDER = "/testbed"  # where images of SWE-bench, SWE-Gym and SWE-smith have the repository
_REPORT_BYTES = 64 << 20
_FIXED = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
# A container's working folder belongs to root, and git trusts nobody else's.
_GIT = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
_PATH = f"{TOOLS}/packages:{WORK}:{WORK}/src:{WORK}/lib"
VARIABLES = _FIXED | _GIT | {"PYTHONPATH": _PATH}  # of an agent, which runs pytest as it likes
# For a program, whose own Python must not import the repository in place of what it needs.
_OFFERED = {"python": "", "python3": "", "pytest": " -m pytest"}
_LEFT_OUT = "__pycache__/\n*.pyc\n.pytest_cache/\n*.egg-info/\n.hypothesis/\n"  # of a diff: what running tests leaves behind
# A new repository of one commit: its history would hold the commit that mends the fault.
_COMMIT = """
set -e
git init -q -b main .
git config user.name agent
git config user.email agent@localhost
mkdir -p .git/info
printf '%s' "$1" > .git/info/exclude
git add -A -f .
GIT_AUTHOR_DATE='@0 +0000' GIT_COMMITTER_DATE='@0 +0000' git commit -q --allow-empty -m base
"""
_FROM_IMAGE = f"find {_IMAGE_FOLDER} -mindepth 1 -maxdepth 1 ! -name .git -exec cp -a -t . {{}} +"
_UNPACK = 'mkdir -p "$1" && exec tar -C "$1" --no-same-owner -xf -'
# Told by nobody beforehand: a test that has to pass, and one that has to fail. A report that says otherwise was forged.
_PROBE = """\
import unittest


class Probe(unittest.TestCase):
    def test_first(self):
        self.assertTrue(True)

    def test_second(self):
        self.assertTrue(False)
"""
_DJANGOS = ["tests/runtests.py", "tests/test_sqlite.py"]  # by which Django runs its own tests; pytest cannot


@dataclass(frozen=True)
class Place:
    """Where repositories are tried: a provider of sandboxes, and the program in it that is Python.

    Attributes:
        packages: of this Python, put into the sandbox beside pytest where the Python in it has no pytest.
        seconds: that setting up a repository, or a run of its tests, may take.
    """

    provider: str
    options: Mapping[str, Any]
    limits: Limits
    python: str
    packages: tuple[str, ...] = ()
    seconds: float = 200.0
    arguments: tuple[str, ...] = ()

    def with_needs(self, needs: Needs) -> Place:
        """Return the same place, with what a program needs."""
        options = needs.options(self.provider, self.options)
        return replace(self, options=options, limits=needs.bounded(self.limits))

    def open(self, image: str = "") -> Sandbox:
        """Start a sandbox, of a container image where one is given. Raises as `open_sandbox`, and a TaskError where a task's own
        image does not start."""
        own = {"image": image} if image else {}
        with of_task(bool(own) and "image" not in self.options):
            return open_sandbox(self.provider, self.limits, {**self.options, **own})

    def image(self, task: Task) -> str:
        """Return the container image that has a task's repository; "": its files are put into the sandbox."""
        return str(self.options.get("image") or task.image) if self.provider == "container" and task.image else ""


DEFAULT_PLACE = Place("bubblewrap", {}, Limits(seconds=200.0, memory_bytes=2 << 30, disk_bytes=512 << 20), "python3")


@dataclass(frozen=True)
class TestRun:
    """What a run of tests left.

    Attributes:
        ended: the limit that ended it.
        sound: whether the report says the truth of the tests that were put beside the task's own.
    """

    __test__ = False  # no test of pytest

    report: dict[Key, Status] = field(default_factory=dict[Key, Status])
    ended: Excess | None = None
    sound: bool = True
    said: str = ""


class Workbench:
    """A sandbox with a repository. `close` ends it.

    Raises:
        DataError: the files cannot be had, or they do not fit.
    """

    def __init__(self, place: Place, image: str = "") -> None:
        self._place = place
        self.sandbox = place.open(image)

    def close(self) -> None:
        self.sandbox.close()

    def __enter__(self) -> Workbench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_up(self, task: Task, sources: Sources) -> None:
        """Put a task's repository into the working folder, with its fault."""
        if self._place.image(task):
            self.require(_FROM_IMAGE)
        else:
            restore(self.sandbox, sources.archive(task))
        if task.planted:
            self.apply(task.patch.encode())
        self.commit()

    def commit(self) -> None:
        """Make the working folder a repository of one commit, and put pytest beside it."""
        self.require(_COMMIT, _LEFT_OUT)
        put(self.sandbox, _RUN_TESTS, Path(__file__).with_name("run_tests.py").read_bytes())
        look = [self._place.python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('pytest') is None)"]
        if self.sandbox.exec(look).code != 0:
            self.unpack(archive_of(("pytest", *self._place.packages)), f"{TOOLS}/packages")

    def offer_python(self) -> dict[str, str]:
        """Put `python`, `python3` and `pytest` that find the repository first on the path of a program, and return its variables.

        Raises:
            DataError: there is no Python.
        """
        python = self.require('command -v -- "$1"', self._place.python).decode().strip()
        for name, arguments in _OFFERED.items():
            script = (
                f'#!/bin/sh\nexport PYTHONPATH="{_PATH}${{PYTHONPATH:+:$PYTHONPATH}}"\nexec {shlex.quote(python)}{arguments} "$@"\n'
            )
            put(self.sandbox, f"{TOOLS}/bin/{name}", script.encode(), executable=True)
        usual = self.require('printf %s "$PATH"').decode()
        return _FIXED | _GIT | {"PATH": f"{TOOLS}/bin:{usual}"}

    def apply(self, patch: bytes) -> None:
        """Apply a patch to the working folder.

        Raises:
            DataError: it does not fit.
        """
        self.require("exec git apply --whitespace=nowarn -", stdin=patch)

    def unpack(self, archive: bytes, folder: str) -> None:
        """Unpack an archive into a folder, which is made."""
        self.require(_UNPACK, folder, stdin=archive)

    def require(self, script: str, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run a script for `sh`; return what it wrote.

        Raises:
            DataError: it failed.
        """
        argv = ["/bin/sh", "-c", script, "sh", *arguments]
        done = self.sandbox.exec(argv, stdin=stdin, seconds=self._place.seconds, env=_GIT, output_bytes=_REPORT_BYTES)
        if done.code != 0:
            raise DataError(f"its repository cannot be set up: {_reason(done)}", "sandbox", "see docs/swe.md")
        return done.stdout

    def run_tests(self, files: Sequence[str], secret: str) -> TestRun:
        """Run files of tests, and a file of our own whose outcome is known.

        Args:
            secret: makes the name of that file, which code under test cannot know beforehand.
        """
        probe = _probe(files, secret)
        put(self.sandbox, probe, _PROBE.encode())
        argv = [self._place.python, "-s", _RUN_TESTS, *self._runner(), *files, probe]
        done = self.sandbox.exec(argv, seconds=self._place.seconds, env=_FIXED, output_bytes=_REPORT_BYTES)
        self.sandbox.end_processes()
        report = self._report()
        first, second = (_popped(report, probe, name) for name in ("test_first", "test_second"))
        return TestRun(report, done.ended, not report or (first, second) == ("passed", "failed"), done.text)

    def _runner(self) -> list[str]:
        """Return arguments of run_tests.py, before those that name files."""
        if existing(self.sandbox, _DJANGOS) == _DJANGOS:
            return [f"--runtests={_REPORT}"]
        flags = ["-q", "--tb=no", "--rootdir=.", "--maxfail=0", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
        return [*flags, f"--junitxml={_REPORT}", "-o", "junit_family=xunit2", *self._place.arguments, "--"]

    def _report(self) -> dict[Key, Status]:
        with suppress(DataError):
            return read_report(get(self.sandbox, _REPORT, _REPORT_BYTES))
        return {}


def existing(sandbox: Sandbox, files: Iterable[str]) -> list[str]:
    """Return the files that are there: pytest runs nothing where one of its arguments is missing."""
    script = 'for file; do [ -f "$file" ] && printf "%s\\0" "$file"; done; exit 0'
    return sandbox.exec(["/bin/sh", "-c", script, "sh", *files]).stdout.decode().split("\0")[:-1]


def _probe(files: Sequence[str], secret: str) -> str:
    name = f"test_{hashlib.sha256(secret.encode()).hexdigest()[:12]}.py"
    return str(PurePosixPath(files[0]).with_name(name))


def _popped(report: dict[Key, Status], probe: str, name: str) -> Status | None:
    """Take a test of the probe out of a report. Django's classes lack the folder of all tests."""
    place, name = key_of(f"{probe}::Probe::{name}")
    return next((report.pop(key) for key in ((place, name), (place.removeprefix("tests."), name)) if key in report), None)


def _reason(done: Result) -> str:
    return done.ended or last_reason(done.stderr, f"exit code {done.code}")
