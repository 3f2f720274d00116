"""`clawpipe review` in the terminal."""

from __future__ import annotations

import io
import json
import sqlite3

import pytest

from clawpipe.cli.main import app
from clawpipe.errors import ConfigError
from clawpipe.record.reviews.open import decisions_file, open_decisions


@pytest.fixture
def review(home, capsys, monkeypatch):
    """Run the command at 80 columns, and return what it printed."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        app(["review", *words], standalone_mode=False)
        return capsys.readouterr().out

    return run


@pytest.fixture
def rows(review):
    """The ids of the rows by session."""
    return {row["session"]: row["row_id"] for row in json.loads(review("list", "--json"))["rows"]}


def test_the_list_fits_into_a_terminal(review):
    shown = review()
    assert shown.startswith("3 rows wait (0 approved, 0 rejected, 0 edited); the most uncertain first\n 1.00  ")
    assert "       asked:     How many legs has a spider got?\n       answer:    It has six of them.\n" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_each_command_decides_and_names_who(home, review, rows, monkeypatch):
    review("approve", rows["praised"][:8], "--by", "ann")
    review("reject", rows["blamed"], "--by", "bob", "--reason", "Paris")
    monkeypatch.setattr("sys.stdin", io.StringIO("Eight.\n"))
    review("edit", rows["silent"], "--by", "cleo")
    counts = json.loads(review("list", "--json"))
    assert (counts["waiting"], counts["approved"], counts["rejected"], counts["edited"]) == (0, 1, 1, 1)
    shown = review("show", rows["silent"])
    assert "edited by cleo at " in shown
    assert "       turn 0:    Eight.\n" in shown
    review("reopen", rows["blamed"], "--by", "ann")
    assert review("list").startswith("1 row waits (1 approved, 0 rejected, 1 edited)")
    history = json.loads(review("show", rows["blamed"], "--json"))["history"]
    assert [(one["verdict"], one["by"], one["reason"]) for one in history] == [("rejected", "bob", "Paris"), ("open", "ann", "")]


def test_what_is_decided_is_decided_anew_only_when_told(home, review, rows):
    review("reject", rows["silent"], "--by", "ann")
    with pytest.raises(ConfigError, match="rejected by ann at "):
        review("approve", rows["praised"], rows["silent"], "--by", "bob")
    assert len(open_decisions(home).every()) == 1  # nothing of the second command
    review("approve", rows["praised"], rows["silent"], "--by", "bob", "--again")
    assert {one.verdict for one in open_decisions(home).last().values()} == {"approved"}


def test_a_row_that_is_named_twice_is_decided_once(home, review, rows):
    review("approve", rows["silent"], rows["silent"][:10], "--by", "ann")
    assert len(open_decisions(home).every()) == 1


def test_who_is_overtaken_is_told_what_was_recorded(home, review, rows):
    """Somebody decides about the second row as soon as the first is recorded."""
    review("reopen", rows["silent"], "--by", "ann")
    database = sqlite3.connect(decisions_file(home))
    database.execute(
        f"""create trigger overtakes after insert on decisions when new.row_id = '{rows["praised"]}' begin
        insert into decisions (row_id, verdict, by, at, reason)
        values ('{rows["blamed"]}', 'rejected', 'bob', '2026-01-01T00:00:00+00:00', ''); end"""
    )
    database.close()
    with pytest.raises(ConfigError, match="rejected by bob") as overtaken:
        review("approve", rows["praised"], rows["blamed"], "--by", "ann")
    assert overtaken.value.fix.startswith("1 of 2 rows were recorded")
