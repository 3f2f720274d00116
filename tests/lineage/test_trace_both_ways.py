"""From a person to models, and from a model to the lines of a file."""

from __future__ import annotations

import json

import pytest

from clawpipe.cli.main import _outcome
from clawpipe.core.store.refs import StepResult
from clawpipe.data.forgotten.subject import Subject
from clawpipe.record.lineage.exposure import exposure, exposure_lines, night_line
from clawpipe.record.lineage.trace import trace
from clawpipe.record.nights.status import entry, read_status, write_status


def test_a_session_is_traced_to_models_without_a_registry(filled):
    first = filled.night("first", filled.refs["samples"], filled.base)
    clean = filled.publish("samples", [row for row in filled.rows("samples") if row["trajectory_id"] == "b1"])
    filled.night("second", clean, first)
    found = exposure(filled.home, Subject(session="sess-a"))
    assert found.trajectories == 3  # two of the session, and the rollout of what was asked in it
    assert {one.name: one.rows for one in found.datasets}["samples"] == 1
    assert found.models == []
    assert [one.digest for one in found.adapters] == [f"{1:064d}", f"{2:064d}"]  # the second goes on from the first
    assert [(one.file, one.lines) for one in found.origins] == [("/logs/all.jsonl", [1, 5])]
    assert exposure(filled.home, Subject(session="nobody")).adapters == []


def test_what_each_night_did_with_the_rows_of_a_session(filled):
    filled.night("first", filled.refs["samples"], filled.base)
    status = read_status(filled.home, filled.nights["first"])
    held = StepResult(output=None, extras={"heldout": filled.refs["trajectories"]})
    curated = StepResult(output=filled.refs["samples"], extras={"quarantine": filled.refs["quarantine"]})
    steps = [entry("hold_out", False, 1.0, None, held), entry("round-1/curate", False, 1.0, None, curated)]
    write_status(status.model_copy(update={"steps": steps}))
    found = exposure(filled.home, Subject(session="sess-a2"))
    night = filled.nights["first"]
    assert [night_line(one) for one in found.nights] == [
        f"night {night}: 2 rows held out by hold_out",
        f"night {night}: 1 row chosen to train on by round-1/curate",
        f"night {night}: 1 row left out by round-1/curate: too long",
    ]
    assert {night_line(one) for one in found.nights} <= set(exposure_lines(found))


def test_a_model_leads_to_files_lines_sessions_and_users(filled):
    filled.night("first", filled.refs["samples"], filled.base)
    found = trace(filled.home, filled.nights["first"], f"{1:064d}")
    told = {name: (one.file, one.line, one.session, one.user) for name, one in found.sources.items()}
    assert told == {
        "a1": ("/logs/all.jsonl", 1, "sess-a", "ann"),
        "a2": ("/logs/all.jsonl", 3, "sess-a2", "ann"),
        "b1": ("/logs/all.jsonl", 2, "sess-b", "ben"),
        "x1": ("/logs/all.jsonl", 8, "sess-a9", None),
    }


def test_the_command_line_asks_forgets_and_collects(filled, capsys):
    def run(*words: str) -> dict:
        assert _outcome([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert run("trace", "--user", "ann")["trajectories"] == 5
    assert run("forget", "--user", "ann", "--dry-run")["dry_run"]
    done = run("forget", "--user", "ann")
    assert (done["still_held"], done["sweeps"], len(done["replaced"])) == ([], [], 8)
    after = run("trace", "--user", "ann")
    assert (after["trajectories"], after["datasets"], bool(after["forgotten"])) == (0, [], True)
    assert run("gc", "--keep-nights", "0", "--dry-run")["artifacts"] == []  # all of it is new


def test_what_people_are_told_names_what_is_theirs_to_do(filled, capsys):
    assert _outcome(["forget", "--session", "sess-a"]) == 0
    out = capsys.readouterr().out
    assert "read from /logs/all.jsonl, lines 1, 5" in out
    assert "The source files still hold it" in out
    assert filled.ann not in out


@pytest.mark.parametrize("words", [[], ["--session", "s", "--user", "u"], ["models:/agent/1", "--session", "s"]])
def test_one_thing_at_a_time(filled, capsys, words):
    assert _outcome(["trace", *words]) == 2


def test_an_id_that_nothing_names_is_told_as_such(filled, capsys):
    def run(*words: str) -> str:
        assert _outcome(["forget", *words]) == 0
        return capsys.readouterr().out

    assert _outcome(["trace", "--session", "sess-aa"]) == 0
    assert "Nothing names the session sess-aa" in capsys.readouterr().out
    assert "Nothing names the session sess-aa" in run("--session", "sess-aa", "--dry-run")
    assert "recorded" not in run("--session", "sess-aa", "--dry-run")
    assert "recorded" in run("--session", "sess-aa")
    assert "Nothing names" in run("--session", "sess-aa")  # noted is not found
    assert json.loads(run("--user", "anne", "--json"))["found"] is False
    assert "Nothing names" not in run("--session", "sess-a", "--dry-run")
    assert json.loads(run("--session", "sess-a", "--json"))["found"] is True
    assert json.loads(run("--session", "sess-a", "--json"))["found"] is True  # it was there
