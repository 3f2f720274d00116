"""The world `swe`: who mends a fault gets 1, and who does anything else gets 0."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Verdict
from clawpipe.play.environments.demonstration import play_out, play_solution, solution_of
from clawpipe.play.environments.discovery import has_own_process, inputs_digest, load_environment, source_digest
from clawpipe.play.environments.ending import outcome_of
from clawpipe.play.environments.swe.environment import SweEnvironment
from clawpipe.play.environments.swe.grading import is_kept, results_of
from clawpipe.play.environments.swe.tasks import task_of
from clawpipe.play.environments.swe.workbench import TestRun
from tests.environments.swe.conftest import FAILING, PATCH, SOURCE, TESTS, opened, row, write_repository, write_rows

MEND = "sed -i 's/number < best/number > best/' tally/__init__.py"
FORGED = "<testsuites>" + "".join(f'<testcase classname="tests.test_tally" name="{t.partition("::")[2]}"/>' for t in FAILING)
PLUGIN = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.outcome = "passed"
"""
PATCHED = """
import _pytest.reports as reports
_old = reports.TestReport.from_item_and_call
def _new(item, call):
    report = _old(item, call)
    report.outcome, report.longrepr = "passed", None
    return report
reports.TestReport.from_item_and_call = staticmethod(_new)
"""
FORGER = f"""
import os, sys
for word in sys.argv:
    if word.startswith("--junitxml="):
        open(word[11:], "w").write('''{FORGED}</testsuites>''')
        os._exit(0)
"""


def played(environment: SweEnvironment, *commands: str) -> tuple[JsonObject, float, str, list[Message]]:
    """Play the first item; return the evidence, the value, the reason and the messages."""
    item = next(
        item for split in ("train", "heldout") if environment.distinct_items(split) for item in environment.items(split, 1, 0)
    )
    says = [Message("assistant", "", (ToolCall("c", "bash", json.dumps({"command": command})),)) for command in commands]
    turns = [*says, Message("assistant", "Done.")]
    messages, ending = play_out(environment, item, lambda number: turns[number] if number < len(turns) else None, len(turns))
    assert ending.verdict, ending.error
    outcome = outcome_of(environment, item, messages, ending)
    return ending.verdict.evidence, outcome.value, outcome.reason, messages


def written(path: str, text: str) -> str:
    return f"mkdir -p $(dirname {path}); cat >> {path} <<'END'\n{text}\nEND"


def test_the_demonstration_mends_the_fault(environment: SweEnvironment):
    [item] = [item for split in ("train", "heldout") for item in environment.items(split, environment.distinct_items(split), 0)]
    messages, ending = play_solution(environment, item, solution_of(environment, item))
    outcome = outcome_of(environment, item, messages, ending)
    assert (outcome.value, outcome.success, outcome.reason) == (1.0, True, "every test passes")
    assert ending.verdict
    patch = ending.verdict.evidence.pop("patch")
    assert ending.verdict.evidence == {
        "left_out": [],
        "fail_to_pass": dict.fromkeys(FAILING, "passed"),
        "pass_to_pass": {"passed": 2, "not_passed": {}},
        "ended": None,
        "report_is_sound": True,
    }
    assert patch.splitlines()[-8:] == PATCH.splitlines()[-8:]


def test_an_agent_that_does_nothing_gets_0(environment: SweEnvironment):
    evidence, value, reason, messages = played(
        environment, "git log --oneline | wc -l; git status --short; python3 -m pytest -q tests | tail -1"
    )
    assert (value, reason, evidence["patch"]) == (0.0, "nothing was changed that counts", "")
    assert messages[-2].content.startswith("1\n2 failed, 2 passed")


@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        ("sed -i 's/== 3/!= 9/' tests/test_tally.py", ["tests/test_tally.py"]),
        ("rm -r tests", ["tests/test_tally.py"]),
        (written("conftest.py", PLUGIN), ["conftest.py"]),
        (written("tests/conftest.py", PLUGIN), ["tests/conftest.py"]),
        (written("cheat.py", PLUGIN) + "\n" + written("pytest.ini", "[pytest]\naddopts = -p cheat"), ["pytest.ini"]),
        (written("sitecustomize.py", PATCHED), ["sitecustomize.py"]),
        (written("x.egg-info/entry_points.txt", "[pytest11]\nx = cheat"), []),
        (written("x.dist-info/entry_points.txt", "[pytest11]\nx = cheat"), ["x.dist-info/entry_points.txt"]),
        (f"printf '%s' '{FORGED}</testsuites>' > /tmp/report.xml; cp /tmp/report.xml .", []),
        (written("pytest.py", "print('1 passed')\ndef main(*a): return 0"), []),
        (written("tally/__init__.py", PATCHED), []),
        (written("tally/__init__.py", FORGER), []),
        (written("tally/__init__.py", "import os\nos._exit(0)"), []),
        (
            "rm -rf .git tests; git init -q; git add -A; " + written("tests/test_tally.py", "def test_largest(): pass"),
            ["tests/test_tally.py"],
        ),
    ],
)
@pytest.mark.slow
def test_an_agent_that_cheats_gets_0(environment: SweEnvironment, command: str, left_out: list[str]):
    evidence, value, _, _ = played(environment, command)
    assert (value, evidence["left_out"]) == (0.0, left_out)


def test_a_report_that_passes_everything_is_not_believed(environment: SweEnvironment):
    evidence, value, reason, _ = played(environment, written("tally/__init__.py", PATCHED))
    assert (value, reason) == (0.0, "the report of the tests cannot be believed")
    assert set(evidence["fail_to_pass"].values()) == {"passed"}


@pytest.mark.slow
def test_who_mends_is_not_held_to_what_else_was_changed(environment: SweEnvironment):
    also = "rm -rf .git tests; mkdir a; ln -s /etc/passwd a/link; mkfifo a/pipe; printf '\\377' > a/bytes"
    evidence, value, _, _ = played(environment, f"{MEND}; {also}")
    assert (value, evidence["left_out"]) == (1.0, ["tests/test_tally.py"])
    assert "a/link" in evidence["patch"]
    assert played(environment, f"{MEND}; rm -r tests; echo > tests")[1] == 1.0


@pytest.mark.slow
def test_what_breaks_other_tests_is_no_success(environment: SweEnvironment):
    evidence, value, reason, _ = played(environment, f"{MEND}; sed -i 's/sum/max/' tally/__init__.py")
    assert (value, reason) == (0.0, "1 tests no longer pass")
    assert evidence["pass_to_pass"] == {"passed": 1, "not_passed": {"tests/test_tally.py::TestTotal::test_total": "failed"}}


def test_the_submission_of_mini_swe_agent_ends_an_episode(environment: SweEnvironment):
    _, _, _, messages = played(environment, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "echo never")
    assert [message.role for message in messages] == ["user", "assistant", "tool"]


@pytest.mark.slow
def test_a_test_patch_is_applied_before_scoring(tmp_path: Path, needs_bubblewrap: None):
    commit = write_repository(tmp_path / "repositories" / "tally")
    added = "diff --git a/tests/test_more.py b/tests/test_more.py\nnew file mode 100644\n--- /dev/null\n+++ b/tests/test_more.py\n"
    added += "@@ -0,0 +1,5 @@\n+from tally import largest\n+\n+\n+def test_more():\n+    assert largest([1, 2]) == 2\n"
    new = row(commit, test_patch=added, FAIL_TO_PASS=["tests/test_more.py::test_more"], PASS_TO_PASS=[])
    world = opened(write_rows(tmp_path / "t.jsonl", new))
    assert played(world, f"{MEND}; mkdir -p tests; echo broken > tests/test_more.py")[1] == 1.0
    assert played(world, written("tests/test_more.py", "def test_more(): pass"))[1] == 0.0


RUNTESTS = """
import argparse, sys, unittest

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--settings", "--parallel"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--noinput", action="store_true")
    parser.add_argument("modules", nargs="*")
    suite = unittest.defaultTestLoader.loadTestsFromNames(parser.parse_args().modules)
    sys.exit(not unittest.TextTestRunner().run(suite).wasSuccessful())
"""
UNITTESTS = """
import unittest
from tally import largest, total

class Tests(unittest.TestCase):
    def test_many(self):
        for numbers in ([1, 3], [3, 1]):
            with self.subTest(numbers=numbers):
                self.assertEqual(largest(numbers), 3)

    def test_doc(self):
        "The largest of two is found."
        self.assertEqual(largest([1, 2]), 2)

    def test_total(self):
        self.assertEqual(total([1, 2]), 3)
"""


def _added(path: str, text: str) -> str:
    lines = text.splitlines(keepends=True)
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n"
    return head + "".join(f"+{line}" for line in lines)


def _with_named_tests(tmp_path: Path, failing: list[str], passing: list[str]) -> SweEnvironment:
    commit = write_repository(tmp_path / "repositories" / "tally")
    new = row(commit, test_patch=_added("tests/app/test_more.py", UNITTESTS), FAIL_TO_PASS=failing, PASS_TO_PASS=passing)
    return opened(write_rows(tmp_path / "t.jsonl", new))


@pytest.mark.parametrize("named", ["test_many (app.test_more.Tests)", "test_many"])
@pytest.mark.slow
def test_names_of_other_runners_are_found_by_pytest(tmp_path: Path, named: str, needs_bubblewrap: None):
    world = _with_named_tests(tmp_path, [named], ["test_total (app.test_more.Tests)"])
    assert played(world, MEND)[1] == 1.0
    assert played(world, "echo >> tally/__init__.py")[1:3] == (0.0, "1 of 1 tests still fail")


@pytest.mark.slow
def test_the_runner_of_django_runs_its_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs_bubblewrap: None):
    """A stand-in for it, with the flags of tests/runtests.py; a docstring's first line is the name of its test."""
    (tests := tmp_path / "repositories" / "tally" / "tests").mkdir(parents=True)
    (tests / "runtests.py").write_text(RUNTESTS)
    (tests / "test_sqlite.py").write_text("")
    world = _with_named_tests(
        tmp_path, ["test_many (app.test_more.Tests)", "The largest of two is found."], ["test_total (app.test_more.Tests)"]
    )
    assert played(world, MEND)[1] == 1.0
    assert played(world, "echo >> tally/__init__.py")[1:3] == (0.0, "2 of 2 tests still fail")
    forger = "import unittest\nunittest.TextTestRunner.resultclass.addSubTest = lambda *given: None\n"
    forger += "unittest.TextTestRunner.resultclass.addFailure = lambda self, test, err: self.addSuccess(test)"
    assert played(world, written("tally/__init__.py", forger))[1:3] == (0.0, "the report of the tests cannot be believed")


@pytest.mark.slow
def test_why_no_test_ran_is_said(tmp_path: Path, needs_bubblewrap: None):
    commit = write_repository(tmp_path / "repositories" / "tally")
    needs = row(commit, test_patch=_added("tests/conftest.py", "import no_such_package\n"))
    reason = played(opened(write_rows(tmp_path / "t.jsonl", needs)), MEND)[2]
    assert reason == "2 of 2 tests still fail: none ran (E   ModuleNotFoundError: No module named 'no_such_package')"


def test_a_run_of_the_tests_that_hangs_is_named(folder: Path):
    world, task = opened(folder / "tasks.jsonl"), task_of(json.loads((folder / "tasks.jsonl").read_text()))
    [item] = [item for split in ("train", "heldout") for item in world.items(split, world.distinct_items(split), 0)]
    outcome = world.verify(item, [], Verdict(results_of(task, TestRun(ended="timeout"))))
    assert (outcome.value, outcome.reason) == (0.0, "2 of 2 tests still fail: their run was ended (timeout)")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["bundle", "files"])
def test_a_repository_may_be_a_bundle_or_files(tmp_path: Path, form: str, needs_bubblewrap: None):
    commit = write_repository(tmp_path / "work")
    (places := tmp_path / "repositories").mkdir()
    if form == "bundle":
        bundle = str(places / "ann__tally.bundle")
        subprocess.run(["git", "-C", str(tmp_path / "work"), "bundle", "create", "-q", bundle, "--all"], check=True)
    else:
        for path, text in {"tally/__init__.py": SOURCE, "tests/test_tally.py": TESTS}.items():
            (file := places / "ann__tally-1" / path).parent.mkdir(parents=True)
            file.write_text(text)
    assert played(opened(write_rows(tmp_path / "t.jsonl", row(commit))), MEND)[1] == 1.0


@pytest.mark.slow
def test_a_fault_of_swe_smith_is_planted(tmp_path: Path, needs_bubblewrap: None):
    write_repository(work := tmp_path / "repositories" / "ann__tally.12345678")
    git = ["git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "apply", "--index", "-"], input=PATCH.encode(), check=True)
    subprocess.run([*git, "commit", "-q", "-m", "two"], check=True)
    turned = PATCH.replace("-        if number <", "-        if number >", 1).replace(
        "+        if number >", "+        if number <", 1
    )
    smith = row("", base_commit=None, test_patch=None, patch=turned, image_name="any", repo="ann__tally.12345678")
    world = opened(write_rows(tmp_path / "t.jsonl", smith))
    assert played(world)[1] == 0.0
    assert played(world, task_of(smith).mending)[1] == 1.0


@pytest.mark.slow
def test_a_patch_of_a_binary_file_mends(tmp_path: Path, needs_bubblewrap: None):
    """It lost its last line, which is empty, so that git refused it."""
    commit = write_repository(work := tmp_path / "repositories" / "tally")
    (work / "tally" / "data.bin").write_bytes(bytes(range(256)))
    subprocess.run(["git", "-C", str(work), "add", "-A"], check=True)
    added = subprocess.run(
        ["git", "-C", str(work), "diff", "--cached", "--binary"], check=True, capture_output=True, text=True
    ).stdout
    new = row(commit, patch=PATCH + added)
    world = opened(write_rows(tmp_path / "t.jsonl", new))
    evidence, value, _, _ = played(world, task_of(new).mending)
    assert (value, "GIT binary patch" in evidence["patch"]) == (1.0, True)


def test_tasks_without_files_are_set_aside_and_told(tmp_path: Path):
    commit = write_repository(tmp_path / "repositories" / "tally")
    (tmp_path / "repositories" / "bad.bundle").write_bytes(b"no bundle")
    rows = [
        row(commit),
        row("f" * 40, instance_id="two"),
        row(commit, instance_id="three", repo="x/none"),
        row(commit, instance_id="4", repo="x/bad"),
    ]
    [told] = opened(write_rows(tmp_path / "t.jsonl", *rows, {"repo": 1})).warnings()
    assert "4 rows are no tasks and were set aside" in told
    assert "tally has no commit ffffffffffff" in told
    with pytest.raises(DataError, match=r"no task of it can be tried: 1 x no repository x__none or three in"):
        opened(write_rows(tmp_path / "u.jsonl", rows[2]))


def test_items_of_one_identity_come_in_turn(folder: Path, tmp_path: Path):
    commit = json.loads((folder / "tasks.jsonl").read_text())["base_commit"]
    rows = [row(commit, instance_id=f"{name}{number}", identity=name) for name in "abcdefgh" for number in range(3)]
    world = opened(write_rows(tmp_path / "t.jsonl", *rows), repositories=str(folder / "repositories"))
    sides = {
        split: [item.identity for item in world.items(split, 3 * world.distinct_items(split), 5)] for split in ("train", "heldout")
    }
    assert not set(sides["train"]) & set(sides["heldout"])
    for split, names in sides.items():
        assert len(set(names[: world.distinct_items(split)])) == world.distinct_items(split)
    assert sum(map(len, sides.values())) == 24
    with pytest.raises(DataError, match="train items wanted"):
        world.items("train", 25, 0)


def test_a_changed_task_is_another_item(folder: Path, environment: SweEnvironment, tmp_path: Path):
    split = "train" if environment.distinct_items("train") else "heldout"
    [item] = environment.items(split, 1, 0)
    changed = json.loads((folder / "tasks.jsonl").read_text()) | {"problem_statement": "Another."}
    world = opened(write_rows(tmp_path / "t.jsonl", changed), repositories=str(folder / "repositories"))
    assert world.items(split, 1, 0)[0].item_id != item.item_id
    _, ending = play_out(world, item, lambda number: None, 1)
    assert ending.reason == "error"
    assert "has no longer the task ann__tally-1" in ending.error


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("tally/core.py", False),
        ("tests/data/x.json", True),
        ("src/tests/a.py", True),
        ("test_a.py", True),
        ("a_test.py", True),
        ("latest.py", False),
        ("contest/a.py", False),
        ("deep/conftest.py", True),
        ("setup.cfg", True),
        ("x.pth", True),
        ("tally/__init__.py", False),
    ],
)
def test_what_stays_as_the_task_has_it(path: str, kept: bool):
    assert is_kept(path, task_of(row("a" * 40))) == kept


def test_what_the_gold_patch_changes_may_be_changed():
    patch = PATCH.replace("tally/__init__.py", "app/test/client.py")
    assert not is_kept("app/test/client.py", task_of(row("a" * 40, patch=patch)))
    assert is_kept("app/test/client.py", task_of(row("a" * 40, patch=patch, test_patch=patch)))


def test_files_that_a_task_names_are_in_the_key(tmp_path: Path):
    """A commit names its files; of a folder without git, and of a newest commit, the file of tasks does not say what it holds."""
    commit = write_repository(work := tmp_path / "repositories" / "ann__tally")
    (file := tmp_path / "repositories" / "plain" / "tally" / "__init__.py").parent.mkdir(parents=True)
    smith = row("", instance_id="smith", base_commit=None, test_patch=None, image_name="any")
    git = ["git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    found: list[str] = []
    for number, one in enumerate((row(commit), row(commit, instance_id="plain"), smith)):
        options = {"tasks": str(write_rows(tmp_path / "t.jsonl", one))}
        before = inputs_digest("swe", options)
        file.write_text(f"# {number}\n")
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "two"], check=True)
        found.append("same" if inputs_digest("swe", options) == before else "other")
    assert found == ["same", "other", "other"]


def test_it_has_own_process_and_its_packages_are_in_the_key(monkeypatch: pytest.MonkeyPatch):
    assert has_own_process("swe")
    assert not has_own_process("shop")
    before = source_digest("swe")
    monkeypatch.setattr("clawpipe.play.environments.discovery.sys.executable", "/usr/bin/python3")
    assert source_digest("swe") != before


@pytest.mark.parametrize("options", [{"share": 1.0}, {"python": 3}, {"steps": 4}, {"tasks": None}, {"sandbox": "unsafe_local"}])
def test_options_are_checked(folder: Path, options: dict[str, object]):
    with pytest.raises(ConfigError, match=r"environment\.options"):
        load_environment("swe", {"tasks": str(folder / "tasks.jsonl")} | options)
