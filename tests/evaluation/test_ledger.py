"""Which night has looked at which held-out identities."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from clawpipe.errors import DataError
from clawpipe.evaluation.ledger import FILE, Ledger
from clawpipe.evaluation.verdict import Freshness


@pytest.fixture
def ledger(home):
    return Ledger(home, "agent", "shop")


def test_what_nobody_has_looked_at_is_fresh(ledger):
    assert ledger.seen() == {}
    assert ledger.record("monday", ["a", "b"]) == Freshness(identities=2, fresh=2, looks=0.0)
    assert ledger.seen() == {"a": 1, "b": 1}


def test_looks_of_other_nights_are_counted(ledger):
    ledger.record("monday", ["a", "b"])
    ledger.record("tuesday", ["b", "c"])
    assert ledger.seen() == {"a": 1, "b": 2, "c": 1}
    assert ledger.record("wednesday", ["a", "b", "d"]) == Freshness(identities=3, fresh=1, looks=1.5)


def test_a_night_that_runs_again_has_looked_once_and_finds_what_it_found(ledger, home):
    ledger.record("monday", ["a"])
    first = ledger.record("tuesday", ["a", "b"])
    ledger.record("wednesday", ["a", "b"])
    text = (home.root / FILE).read_bytes()
    assert ledger.seen(before="tuesday") == {"a": 1}
    assert ledger.record("tuesday", ["b", "a"]) == first == Freshness(identities=2, fresh=1, looks=1.0)
    assert (home.root / FILE).read_bytes() == text


def test_what_a_night_looks_at_besides_is_added(ledger):
    ledger.record("monday", ["a"])
    ledger.record("monday", ["a", "b"])
    assert ledger.seen() == {"a": 1, "b": 1}


def test_models_and_environments_have_ledgers_of_their_own(ledger, home):
    ledger.record("monday", ["a"])
    assert Ledger(home, "other", "shop").seen() == {}
    assert Ledger(home, "agent", "letters").seen() == {}


def test_a_line_that_a_kill_left_unfinished_is_no_look(ledger, home):
    ledger.record("monday", ["a"])
    with (home.root / FILE).open("ab") as file:
        file.write(b'{"who": "tuesday", "identi')
    assert ledger.seen() == {"a": 1}
    ledger.record("tuesday", ["b"])
    assert [json.loads(line)["who"] for line in (home.root / FILE).read_text().splitlines()] == ["monday", "tuesday"]


def test_a_damaged_line_is_told(ledger, home):
    ledger.record("monday", ["a"])
    (home.root / FILE).write_text('{"who": 3}\n')
    with pytest.raises(DataError, match="line 1 is damaged"):
        ledger.seen()


def test_trials_of_a_sweep_that_look_at_once_look_once(ledger, home):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: Ledger(home, "agent", "shop").record("sweep/x", ["a", "b"]), range(16)))
    assert set(found) == {Freshness(identities=2, fresh=2)}
    assert len((home.root / FILE).read_text().splitlines()) == 1
