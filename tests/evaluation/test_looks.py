"""The ledger: which night has looked at which held-out identities."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from clawpipe.errors import DataError
from clawpipe.learn.evaluation.verdict.looks import Looks
from clawpipe.learn.evaluation.verdict.verdict import Freshness


@pytest.fixture
def ledger(home):
    return Looks(home.root, "agent", "shop")


def test_what_nobody_has_looked_at_is_fresh(ledger):
    assert ledger.seen() == {}
    assert ledger.record("monday", "monday", ["a", "b"]) == Freshness(identities=2, fresh=2, looks=0.0)
    assert ledger.seen() == {"a": 1, "b": 1}


def test_looks_of_other_nights_are_counted(ledger):
    ledger.record("monday", "monday", ["a", "b"])
    ledger.record("tuesday", "tuesday", ["b", "c"])
    assert ledger.seen() == {"a": 1, "b": 2, "c": 1}
    assert ledger.record("wednesday", "wednesday", ["a", "b", "d"]) == Freshness(identities=3, fresh=1, looks=1.5)


def test_a_repeated_night_looks_once_and_sees_the_same_counts(ledger, home):
    ledger.record("monday", "monday", ["a"])
    first = ledger.record("tuesday", "tuesday", ["a", "b"])
    ledger.record("wednesday", "wednesday", ["a", "b"])
    text = (home.root / "looks.jsonl").read_bytes()
    assert ledger.seen("tuesday") == {"a": 1}
    assert ledger.record("tuesday", "tuesday", ["b", "a"]) == first == Freshness(identities=2, fresh=1, looks=1.0)
    assert (home.root / "looks.jsonl").read_bytes() == text


def test_what_a_night_looks_at_besides_is_added(ledger):
    ledger.record("monday", "monday", ["a"])
    ledger.record("monday", "monday", ["a", "b"])
    assert ledger.seen() == {"a": 1, "b": 1}


def test_models_and_environments_have_ledgers_of_their_own(ledger, home):
    ledger.record("monday", "monday", ["a"])
    assert Looks(home.root, "other", "shop").seen() == {}
    assert Looks(home.root, "agent", "letters").seen() == {}


def test_a_line_that_a_kill_left_unfinished_is_no_look(ledger, home):
    ledger.record("monday", "monday", ["a"])
    with (home.root / "looks.jsonl").open("ab") as file:
        file.write(b'{"night": "tuesday", "identi')
    assert ledger.seen() == {"a": 1}
    ledger.record("tuesday", "tuesday", ["b"])
    assert [json.loads(line)["night"] for line in (home.root / "looks.jsonl").read_text().splitlines()] == ["monday", "tuesday"]


def test_a_damaged_line_is_told(ledger, home):
    ledger.record("monday", "monday", ["a"])
    (home.root / "looks.jsonl").write_text('{"night": 3}\n')
    with pytest.raises(DataError, match="line 1 is damaged"):
        ledger.seen()


def test_a_killed_night_that_runs_at_once_with_itself_looks_once(home):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: Looks(home.root, "agent", "shop").record("monday", "monday", ["a"]), range(16)))
    assert set(found) == {Freshness(identities=1, fresh=1)}
    assert len((home.root / "looks.jsonl").read_text().splitlines()) == 1


def test_trials_of_a_sweep_draw_from_the_same_looks(ledger):
    """It does not matter which looks first or which night looks in between; later nights find their items used."""
    ledger.record("monday", "monday", ["a"])
    ledger.begin("sweep")
    ledger.record("tuesday", "tuesday", ["b"])
    assert ledger.seen("sweep") == {"a": 1}
    assert ledger.record("sweep-0", "sweep", ["c"]) == Freshness(identities=1, fresh=1)
    assert ledger.record("sweep-1", "sweep", ["c"]) == Freshness(identities=1, fresh=0, looks=1.0)
    ledger.begin("sweep")
    assert ledger.seen("sweep") == {"a": 1}
    assert ledger.seen("wednesday") == {"a": 1, "b": 1, "c": 2}
