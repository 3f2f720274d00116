"""Read files of tasks in the schema of SWE-bench, which SWE-Gym has too, and in that of SWE-smith.

SWE-bench: `instance_id, repo, base_commit, problem_statement, patch, test_patch, FAIL_TO_PASS, PASS_TO_PASS`; the last two are
lists, or lists as JSON text. SWE-smith has no `base_commit` and no `test_patch`: its `patch` plants the fault into the newest
commit, and who reverses it mends the fault. A row that lacks a part is set aside with its reason.

Tests have the names that their project's own runner writes, see `clawpipe.play.environments.swe.names`. Those that name no file are
looked for where `test_patch` changes tests, as SWE-bench does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.plain_digests import sha256_plain
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.play.environments.swe.names import file_of, is_test_file, leads_out
from clawpipe.play.environments.swe.patches import paths_of

_FORMS = "JSON Lines, a JSON list, or Parquet"
_SHOWN = 3  # reasons in a sentence
_BINARY = "GIT binary patch"  # which ends with an empty line


@dataclass(frozen=True)
class Task:
    """A fault in a repository, and the tests that say whether it is mended.

    Attributes:
        repo: its name, such as owner/name.
        base_commit: whose files have the fault; "": those of the newest commit, once `patch` has planted it.
        problem: what the agent is told.
        patch: mends the fault; reversed where `base_commit` is "".
        test_patch: adds or changes tests before they are run; may be "".
        fail_to_pass: tests that fail because of the fault, as `tests/test_a.py::test_b`, `test_b (a.Tests)` or `test_b`.
        pass_to_pass: tests that pass with the fault, and have to pass without it.
        image: container image that has the repository; "": none.
        identity: tasks that share it are on one side of the split.
    """

    instance_id: str
    repo: str
    base_commit: str
    problem: str
    patch: str
    test_patch: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    image: str
    identity: str

    @property
    def planted(self) -> bool:
        """Whether `patch` plants the fault, and its reverse mends it."""
        return not self.base_commit

    @property
    def digest(self) -> str:
        """The digest of all of it."""
        return sha256_plain(asdict(self))

    @property
    def mending(self) -> str:
        """The command that mends the fault."""
        patch = self.patch.rstrip("\n") + ("\n\n" if _BINARY in self.patch else "\n")
        return f"git apply{' -R' if self.planted else ''} - <<'PATCH'\n{patch}PATCH"

    @property
    def test_files(self) -> list[str]:
        """The files of its tests, in order; of tests that name no file, those of `test_patch`."""
        named = {file_of(test) for test in (*self.fail_to_pass, *self.pass_to_pass)}
        patched = filter(is_test_file, paths_of(self.test_patch)) if None in named else ()
        return sorted({*filter(None, named), *patched})


@dataclass(frozen=True)
class Tasks:
    """The tasks of a file, and why other rows are none, by row number from 1."""

    tasks: tuple[Task, ...]
    refused: dict[int, str]


class RefusedRowError(Exception):
    """A row is no task; says why."""


def read_tasks(file: Path) -> Tasks:
    """Read a file of tasks.

    Raises:
        NotFoundError: there is no such file.
        DataError: it has another form, or no row of it is a task.
    """
    if not file.is_file():
        raise NotFoundError("there is no such file of tasks", str(file), "set environment.options.tasks")
    tasks: dict[str, Task] = {}
    refused: dict[int, str] = {}
    for number, row in enumerate(_rows(file), start=1):
        try:
            task = task_of(row)
            if task.instance_id in tasks:
                raise RefusedRowError("an earlier row has its instance_id")
            tasks[task.instance_id] = task
        except RefusedRowError as error:
            refused[number] = str(error)
    if not tasks:
        raise DataError(f"no row of it is a task: {about(refused.values()) or 'it is empty'}", str(file), "see docs/swe.md")
    return Tasks(tuple(tasks.values()), refused)


def about(reasons: Iterable[str]) -> str:
    """Return the commonest reasons with their numbers, which add up with those of the others."""
    counted = Counter(reasons).most_common()
    others = sum(count for _, count in counted[_SHOWN:])
    return ", ".join(f"{count} x {reason}" for reason, count in [*counted[:_SHOWN], *[("another reason", others)] * bool(others)])


def task_of(row: Any) -> Task:
    """Return the task of a row.

    Raises:
        RefusedRowError: it lacks a part, or nobody knows where its tests are.
    """
    if not isinstance(row, dict):
        raise RefusedRowError("no JSON object")
    planted = not row.get("base_commit") and bool(row.get("image_name")) and "test_patch" not in row
    repo, patch = _text(row, "repo"), _text(row, "patch")
    task = Task(
        instance_id=_text(row, "instance_id"),
        repo=repo,
        base_commit="" if planted else _text(row, "base_commit"),
        problem=_text(row, "problem_statement"),
        patch=patch,
        test_patch="" if planted else _text(row, "test_patch", may_be_empty=True),
        fail_to_pass=_tests(row, "FAIL_TO_PASS", least=1),
        pass_to_pass=_tests(row, "PASS_TO_PASS"),
        image=next((row[name] for name in ("image_name", "docker_image") if isinstance(row.get(name), str)), ""),
        identity=str(row.get("identity") or f"{repo}: {', '.join(sorted(paths_of(patch)))}"),
    )
    if not task.test_files:
        raise RefusedRowError("its tests name no file, and its test_patch changes no file of tests")
    return task


def _rows(file: Path) -> Iterator[Any]:
    with file.open("rb") as opened:
        begin = opened.read(64).lstrip()
    if begin.startswith(b"PAR1"):
        yield from _parquet(file)
    elif begin.startswith(b"["):
        yield from _list(file)
    else:
        yield from (_parsed(line) for line in file.read_bytes().splitlines() if line.strip())


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _list(file: Path) -> list[Any]:
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"this is no JSON list: {error}", str(file), f"give {_FORMS}") from None


def _parquet(file: Path) -> Iterator[Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise ConfigError("Parquet needs pyarrow", str(file), "install it in environment.python, or give JSON Lines") from None
    try:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=64):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"it cannot be read: {error}", str(file), f"give {_FORMS}") from None


def _text(row: JsonObject, field: str, *, may_be_empty: bool = False) -> str:
    value = row.get(field)
    if value is None and may_be_empty and field in row:
        return ""
    if not isinstance(value, str) or not (value.strip() or may_be_empty):
        raise RefusedRowError(f"no {field}")
    _require_utf8(value, field)
    return value


def _require_utf8(text: str, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedRowError(f"{field} has half a surrogate pair") from None


def _tests(row: JsonObject, field: str, least: int = 0) -> tuple[str, ...]:
    value = row.get(field)
    tests = _parsed(value.encode()) if isinstance(value, str) else value
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise RefusedRowError(f"no {field}" if value is None else f"{field} is no list of tests")
    if len(tests) < least:
        raise RefusedRowError(f"{field} is empty")
    for test in tests:
        _require_utf8(test, field)
    if strange := next((test for test in tests if not test.strip() or leads_out(test)), None):
        raise RefusedRowError(f"{field} holds what is no test, such as {strange[:60]!r}")
    return tuple(dict.fromkeys(tests))
