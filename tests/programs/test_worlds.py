"""A program does tasks of `terminal` and `swe`: where these lie, and judged by what it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.environments.agent import AgentEnvironment
from clawpipe.play.environments.base import TaskItem, Verdict
from tests.environments.swe.conftest import needs_bubblewrap, row, write_repository, write_rows  # noqa: F401  (a fixture)
from tests.environments.test_task_folders import make
from tests.programs.conftest import SHELL_LOOP, Play, scripted

pytestmark = pytest.mark.usefixtures("needs_bubblewrap")
RENAME = {"name": "terminal", "options": {"families": ["rename"]}}
MEND = "sed -i 's/number < best/number > best/' tally/__init__.py"


@pytest.fixture(scope="session")
def tally(tmp_path_factory: pytest.TempPathFactory) -> JsonObject:
    """The world of one repository with a fault."""
    folder = tmp_path_factory.mktemp("tally")
    commit = write_repository(folder / "repositories" / "ann__tally")
    rows = [row(commit, instance_id=f"ann__tally-{number}", problem_statement=f"Fault {number}.") for number in range(8)]
    return {"name": "swe", "options": {"tasks": str(write_rows(folder / "tasks.jsonl", *rows)), "share": 0.01}}


def outcome(world: JsonObject, played: Row):
    """Return how the recorded verdict of a row is judged."""
    environment = AgentEnvironment(SHELL_LOOP, world=world)
    items = {item.item_id: item for item in environment.items("train", 1, 0)}
    return environment.verify(items[played["item_id"]], [], Verdict(json.loads(played["verdict"])))


def renamed(world: JsonObject) -> tuple[TaskItem, str]:
    """Return the first task, and the command that does it."""
    [item] = AgentEnvironment(SHELL_LOOP, world=world).items("train", 1, 0)
    wanted = json.loads(item.truth)["wanted"]
    (old,), (new,) = ([path for path, entry in wanted.items() if bool(entry) is there] for there in (False, True))
    return item, f"mv {old} {new}"


def test_a_task_of_the_terminal_is_done_where_it_lies(play: Play):
    item, command = renamed(RENAME)
    [done] = play(SHELL_LOOP, engine=scripted(command, "done"), max_new_tokens=60, world=RENAME)
    [not_done] = play(SHELL_LOOP, engine=scripted("ls", "done"), max_new_tokens=60, world=RENAME)
    assert (done["error"], done["ended"], done["environment"], done["item_id"]) == (None, "done", "agent", item.item_id)
    assert done["messages"][0]["content"] == item.messages[0].content
    assert outcome(RENAME, done).success
    assert not outcome(RENAME, not_done).success
    assert json.loads(done["verdict"])["turns"] == 2
    assert "steps" not in json.loads(done["verdict"])["check"]  # which the program takes, and nobody counts
    assert "loop" not in not_done["messages"][2]["content"]  # of `ls`: the program's file lies elsewhere


def test_a_mended_repository_passes_its_tests(play: Play, tally: JsonObject):
    [done] = play(SHELL_LOOP, engine=scripted(MEND, "python -m pytest -q", "done"), max_new_tokens=60, world=tally)
    assert done["error"] is None
    assert "4 passed" in done["messages"][4]["content"]
    assert outcome(tally, done).success
    verdict = json.loads(done["verdict"])["check"]
    assert verdict["left_out"] == []
    assert verdict["patch"].count("diff --git") == 1


def test_a_changed_test_mends_nothing(play: Play, tally: JsonObject):
    [played] = play(SHELL_LOOP, engine=scripted("rm -r tests", "done"), max_new_tokens=60, world=tally)
    assert outcome(tally, played).reason == "nothing was changed that counts"


def test_a_program_that_a_path_names_is_put_beside_the_task(
    play: Play, tally: JsonObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The path is one of the directory in which the night was started, of which the sandbox has nothing."""
    monkeypatch.chdir(tmp_path)
    (agent := tmp_path / "bin" / "agent").parent.mkdir()
    agent.write_text("#!/usr/bin/python3\n" + Path(SHELL_LOOP[1]).read_text())
    for command in (["bin/agent"], ["./bin/agent"], [str(agent)]):
        [done] = play(command, engine=scripted(MEND, "done"), max_new_tokens=60, world=tally)
        assert done["error"] is None
        assert outcome(tally, done).success


def test_its_own_python_does_not_import_the_repository(play: Play, tally: JsonObject):
    fault = "mkdir -p src && echo 'raise SystemExit(9)' > src/json.py"
    own = "/usr/bin/python3 -c 'import json'; echo $?; python3 -c 'import json'; echo $?"
    [played] = play(SHELL_LOOP, engine=scripted(fault, own, "done"), max_new_tokens=80, world=tally)
    assert played["messages"][4]["content"].split() == ["0", "9"]


def test_a_run_that_is_too_long_is_judged_by_what_it_left(play: Play):
    _, command = renamed(RENAME)
    engine = scripted(f"{command}; sleep 600")
    [played] = play(SHELL_LOOP, engine=engine, max_new_tokens=60, world=RENAME, limits={"seconds": 5.0})
    assert (played["ended"], played["error"]) == ("timeout", None)
    assert outcome(RENAME, played).success


def test_the_tests_of_a_task_take_no_longer_than_a_call_may(play: Play, tmp_path: Path, tally: JsonObject):
    folders = {"name": "terminal", "options": {"folder": str(make(tmp_path, tests__test_sh="sleep 600")), "share": 0.01}}
    [played] = play(SHELL_LOOP, engine=scripted("done"), call_timeout=1.5, world=folders)
    assert (played["ended"], played["verdict"]) == ("timeout", None)
    assert played["error"] == "its tests took longer than environment.call_timeout, 1.5 s"
    hang = "sed -i '1i import time; time.sleep(600)' tally/__init__.py"
    [played] = play(SHELL_LOOP, engine=scripted(hang, "done"), max_new_tokens=80, call_timeout=9.0, world=tally)
    assert (played["ended"], played["error"]) == ("timeout", "its tests took longer than environment.call_timeout, 9 s")


def test_a_task_that_cannot_be_set_up_has_its_reason(play: Play, tmp_path: Path):
    repository = tmp_path / "repositories" / "ann__tally"
    repository.mkdir(parents=True)
    (repository / "large").write_bytes(b"x" * (9 << 20))
    tasks = write_rows(tmp_path / "tasks.jsonl", row(write_repository(repository)))
    world = {"name": "swe", "options": {"tasks": str(tasks), "share": 0.01, "disk_mb": 8}}
    [played] = play(SHELL_LOOP, engine=scripted("done"), world=world)
    assert played["ended"] == "error"
    assert "cannot be restored" in played["error"]


def test_limits_of_the_program_hold_in_the_sandbox_of_the_task(play: Play):
    [played] = play(
        SHELL_LOOP, engine=scripted("bash -c 'ulimit -u'", "done"), max_new_tokens=60, world=RENAME, limits={"processes": 77}
    )
    assert played["messages"][2]["content"].strip() == "77"


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"world": {"name": "shop"}}, "world"),
        ({"world": {"name": "terminal", "folder": "x"}}, "world"),
        ({"world": RENAME, "tasks": "tasks.jsonl"}, "tasks"),
        ({"world": RENAME, "check": ["true"]}, "check"),
        ({"world": RENAME, "sandbox": "unsafe_local"}, "sandbox"),
        ({"world": RENAME, "limits": {"second": 1}}, "limits"),
        ({"world": RENAME, "limits": {"processes": 0}}, "limits.processes"),
        ({"world": RENAME, "tokens": 0}, "tokens"),
        ({"world": {"name": "terminal", "options": {"familys": []}}}, "world.options.familys"),
        ({"world": {"name": "terminal", "options": {"sandbox": "bubble"}}}, "world.options.sandbox"),
        ({"world": {"name": "terminal", "options": {"sandbox_options": {"path": []}}}}, "world.options.sandbox_options"),
        ({"world": {"name": "terminal", "options": {"sandbox": "container"}}}, "world.options.sandbox_options"),
        ({}, "tasks"),
    ],
)
def test_settings_that_cannot_be_are_refused_where_they_stand(options: JsonObject, where: str):
    with pytest.raises((ConfigError, NotFoundError)) as refused:
        AgentEnvironment(SHELL_LOOP, **options)
    assert str(refused.value.where) == f"environment.options.{where}"


def test_a_sandbox_that_nobody_offers_is_told_beforehand(tally: JsonObject):
    with pytest.raises(NotFoundError) as refused:
        AgentEnvironment(SHELL_LOOP, world={"name": "swe", "options": tally["options"] | {"sandbox": "bubblewarp"}})
    assert refused.value.where == "environment.options.world.options.sandbox"


def test_why_what_was_left_cannot_be_read_is_told(play: Play, tally: JsonObject):
    [played] = play(SHELL_LOOP, engine=scripted(f"{MEND}; chmod 000 tally", "done"), max_new_tokens=90, world=tally)
    assert played["error"] is None
    assert "Permission denied" in outcome(tally, played).reason


@pytest.mark.parametrize(
    ("text", "told"), [("A NUL \0.", "a NUL"), ("x" * 130_000, "120000 bytes"), ("\"{key}\"\n'$(id)' `~` ü", None)]
)
def test_a_task_that_cannot_be_told_is_set_aside(play: Play, tally: JsonObject, tmp_path: Path, text: str, told: str | None):
    file = Path(tally["options"]["tasks"])
    tasks = write_rows(tmp_path / "tasks.jsonl", json.loads(file.read_text().splitlines()[0]) | {"problem_statement": text})
    world = {"name": "swe", "options": {"tasks": str(tasks), "repositories": str(file.parent / "repositories"), "share": 0.01}}
    [played] = play(SHELL_LOOP, engine=scripted("done"), world=world)
    assert (played["error"] is None) == (told is None)
    assert (told or "") in (played["error"] or "")
    assert played["messages"][0]["content"] == text


def test_a_link_to_what_is_no_text_is_recorded(play: Play):
    links = {"name": "terminal", "options": {"families": ["make-link"]}}
    [item] = AgentEnvironment(SHELL_LOOP, world=links).items("train", 1, 0)
    [name] = [path for path, entry in json.loads(item.truth)["wanted"].items() if entry and "link" in entry]
    [played] = play(SHELL_LOOP, engine=scripted(f"ln -s \"$(printf '\\377')\" {name}", "done"), max_new_tokens=80, world=links)
    assert played["error"] is None
    assert outcome(links, played).reason == f"not as wanted: {name}"


def test_other_tasks_of_the_world_are_another_input(tally: JsonObject, tmp_path: Path):
    options = {"command": ["in-the-image-alone"], "world": tally}
    file = Path(tally["options"]["tasks"])
    fewer = write_rows(file.with_name("fewer.jsonl"), *map(json.loads, file.read_text().splitlines()[:3]))
    others = options | {"world": {"name": "swe", "options": tally["options"] | {"tasks": str(fewer)}}}
    digests = [AgentEnvironment.inputs_digest(given) for given in (options, others, options, {"command": ["in-the-image-alone"]})]
    assert digests[0] == digests[2]
    assert len(set(digests)) == 3
