"""A repository of one small package with a fault, as files of tasks describe it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.play.environments.swe.environment import Config, SweEnvironment

SOURCE = """\
def largest(numbers):
    best = numbers[0]
    for number in numbers[1:]:
        if number < best:
            best = number
    return best


def total(numbers):
    return sum(numbers)
"""
TESTS = """\
import pytest
from tally import largest, total


@pytest.mark.parametrize("numbers", [[1, 3, 2], [3, 1]])
def test_largest(numbers):
    assert largest(numbers) == 3


def test_largest_of_one():
    assert largest([4]) == 4


class TestTotal:
    def test_total(self):
        assert total([1, 2]) == 3
"""
PATCH = """\
diff --git a/tally/__init__.py b/tally/__init__.py
--- a/tally/__init__.py
+++ b/tally/__init__.py
@@ -1,7 +1,7 @@
 def largest(numbers):
     best = numbers[0]
     for number in numbers[1:]:
-        if number < best:
+        if number > best:
             best = number
     return best
 
"""
FAILING = ["tests/test_tally.py::test_largest[numbers0]", "tests/test_tally.py::test_largest[numbers1]"]
PASSING = ["tests/test_tally.py::test_largest_of_one", "tests/test_tally.py::TestTotal::test_total"]


def write_repository(folder: Path) -> str:
    """Write the package as a repository of git; return its commit."""
    for path, text in {"tally/__init__.py": SOURCE, "tests/test_tally.py": TESTS, "README": "Counts.\n"}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def row(commit: str, **changes: object) -> JsonObject:
    """Return a row of SWE-bench; a change to None leaves a field out."""
    whole: JsonObject = {
        "instance_id": "ann__tally-1",
        "repo": "ann/tally",
        "base_commit": commit,
        "problem_statement": "largest returns the smallest.",
        "patch": PATCH,
        "test_patch": "",
        "FAIL_TO_PASS": json.dumps(FAILING),
        "PASS_TO_PASS": json.dumps(PASSING),
    } | changes
    return {name: value for name, value in whole.items() if value is not None}


def opened(tasks: Path, **options: Any) -> SweEnvironment:
    return SweEnvironment(Config(tasks=str(tasks), **options))


def write_rows(file: Path, *rows: object) -> Path:
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return file


@pytest.fixture(scope="session")
def needs_bubblewrap() -> None:
    if not shutil.which("bwrap"):
        pytest.skip("no bubblewrap on this machine: apt-get install bubblewrap")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `tasks.jsonl` and `repositories`, where the repository's folder is called ann__tally."""
    place = tmp_path_factory.mktemp("swe")
    commit = write_repository(place / "repositories" / "ann__tally")
    write_rows(place / "tasks.jsonl", row(commit))
    return place


@pytest.fixture(scope="session")
def environment(folder: Path, needs_bubblewrap: None) -> SweEnvironment:
    return opened(folder / "tasks.jsonl")
