"""Rows of SWE-bench, SWE-Gym and SWE-smith as tasks, and the reasons why others are none."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clawpipe.errors import DataError, NotFoundError
from clawpipe.play.environments.swe.patches import paths_of
from clawpipe.play.environments.swe.tasks import about, read_tasks, task_of
from tests.environments.swe.conftest import FAILING, PASSING, PATCH, row, write_rows

SHA = "a" * 40
SMITH = {
    "instance_id": "swesmith__tally.1-2",
    "repo": "swesmith/ann__tally.1234abcd",
    "patch": PATCH,
    "FAIL_TO_PASS": FAILING,
    "PASS_TO_PASS": PASSING,
    "image_name": "swesmith.x86_64.ann_1776_tally.1234abcd",
    "problem_statement": "It is wrong.",
}


def test_a_row_of_swe_bench_has_lists_as_text():
    task = task_of(row(SHA))
    assert (task.base_commit, task.fail_to_pass, task.pass_to_pass) == (SHA, tuple(FAILING), tuple(PASSING))
    assert (task.identity, task.test_files) == ("ann/tally: tally/__init__.py", ["tests/test_tally.py"])
    assert task.mending.startswith("git apply - <<'PATCH'\ndiff --git")


def test_a_row_of_swe_gym_has_lists():
    assert task_of(row(SHA, FAIL_TO_PASS=FAILING, PASS_TO_PASS=[])).fail_to_pass == tuple(FAILING)


def test_a_patch_of_swe_smith_plants_the_fault():
    task = task_of(SMITH)
    assert (task.planted, task.base_commit, task.image) == (True, "", SMITH["image_name"])
    assert task.mending.startswith("git apply -R - <<'PATCH'")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"instance_id": None}, "no instance_id"),
        ({"repo": ""}, "no repo"),
        ({"base_commit": None}, "no base_commit"),
        ({"problem_statement": "  "}, "no problem_statement"),
        ({"problem_statement": "It prints \ud83d."}, "problem_statement has half a surrogate pair"),
        ({"FAIL_TO_PASS": ["tests/test_a.py::test_b[\ud83d]"]}, "FAIL_TO_PASS has half a surrogate pair"),
        ({"patch": ""}, "no patch"),
        ({"test_patch": None}, "no test_patch"),
        ({"FAIL_TO_PASS": None}, "no FAIL_TO_PASS"),
        ({"FAIL_TO_PASS": "[]"}, "FAIL_TO_PASS is empty"),
        ({"FAIL_TO_PASS": "[broken"}, "FAIL_TO_PASS is no list of tests"),
        ({"FAIL_TO_PASS": [3]}, "FAIL_TO_PASS is no list of tests"),
        ({"PASS_TO_PASS": None}, "no PASS_TO_PASS"),
        (
            {"FAIL_TO_PASS": ["test_a (app.Tests)"], "PASS_TO_PASS": []},
            "its tests name no file, and its test_patch changes no file of tests",
        ),
        ({"FAIL_TO_PASS": [" "]}, "FAIL_TO_PASS holds what is no test, such as ' '"),
        ({"FAIL_TO_PASS": ["../x/test_a.py::test_b"]}, "FAIL_TO_PASS holds what is no test, such as '../x/test_a.py::test_b'"),
        ({"FAIL_TO_PASS": ["--pdb.py::x"]}, "FAIL_TO_PASS holds what is no test, such as '--pdb.py::x'"),
    ],
)
def test_a_row_that_lacks_a_part_is_set_aside(tmp_path: Path, changes: dict[str, object], reason: str):
    read = read_tasks(write_rows(tmp_path / "t.jsonl", row(SHA), row(SHA, **({"instance_id": "other"} | changes))))
    assert len(read.tasks) == 1
    assert read.refused == {2: reason}


def test_lines_that_are_no_rows_are_set_aside(tmp_path: Path):
    file = write_rows(tmp_path / "t.jsonl", row(SHA), [1], row(SHA))
    file.write_text(file.read_text() + '{"half": \n')
    assert read_tasks(file).refused == {2: "no JSON object", 3: "an earlier row has its instance_id", 4: "no JSON object"}


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_other_forms_hold_the_same_tasks(tmp_path: Path, form: str):
    rows, file = [row(SHA), row(SHA, instance_id="two", FAIL_TO_PASS="[]")], tmp_path / f"t.{form}"
    if form == "json":
        file.write_text(json.dumps(rows, indent=1))
    else:
        pq.write_table(pa.Table.from_pylist(rows), file)
    read = read_tasks(file)
    assert (read.tasks, read.refused) == ((task_of(rows[0]),), {2: "FAIL_TO_PASS is empty"})


def test_parquet_with_lists_is_read(tmp_path: Path):
    pq.write_table(pa.Table.from_pylist([SMITH]), tmp_path / "t.parquet")
    assert read_tasks(tmp_path / "t.parquet").tasks == (task_of(SMITH),)


@pytest.mark.parametrize(
    ("text", "what"), [(b"", "it is empty"), (b"PAR1 not really", "cannot be read"), (b"[1, ", "no JSON list")]
)
def test_a_file_without_a_task_is_refused(tmp_path: Path, text: bytes, what: str):
    (tmp_path / "t").write_bytes(text)
    with pytest.raises(DataError, match=what):
        read_tasks(tmp_path / "t")


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(NotFoundError, match="no such file of tasks"):
        read_tasks(tmp_path / "none.jsonl")


def test_paths_of_a_patch_are_those_of_both_sides():
    patch = "--- a/old name.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x\n"
    assert paths_of(patch) == {"old name.py", "new.py"}


def test_tests_without_a_file_lie_where_test_patch_changes_some():
    files = ("tests/app/tests.py", "tests/app/models.py", "tests/test_b.py", "a/data.txt")
    patch = "".join(f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-x\n+y\n" for name in files)
    changes = {"test_patch": patch, "PASS_TO_PASS": ["tests/test_c.py::test_d"]}
    for name in ("test_a (app.tests.Tests)", "test_a", "A sentence about a test: it works."):
        task = task_of(row(SHA, FAIL_TO_PASS=[name], **changes))
        assert task.test_files == ["tests/app/tests.py", "tests/test_b.py", "tests/test_c.py"]


def test_paths_of_what_has_no_lines_are_found():
    patch = (
        "diff --git a/old.py b/new.py\nsimilarity index 100%\nrename from old.py\nrename to new.py\n"
        "diff --git a/x y.png b/x y.png\nindex 1..2 100644\nGIT binary patch\nliteral 1\n"
        "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"
        'diff --git "a/t/\\303\\251\\".py" "b/t/\\303\\251\\".py"\n--- "a/t/\\303\\251\\".py"\n+++ "b/t/\\303\\251\\".py"\n'
    )
    assert paths_of(patch) == {"old.py", "new.py", "x y.png", "run.sh", 't/é".py'}


def test_reasons_of_refused_rows_add_up():
    assert about(["no repo", "no patch", "no repo"]) == "2 x no repo, 1 x no patch"
    assert about([*"aaabbcdd", "e"]) == "3 x a, 2 x b, 2 x d, 2 x another reason"
