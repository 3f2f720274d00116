"""The ledger: which night has looked at which held-out identities."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from clawpipe.errors import DataError
from clawpipe.learn.evaluation.verdict.looks import Looks, SeveralLooks
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


@pytest.mark.parametrize("parts", [False, True])
def test_a_night_that_is_renewed_counts_looks_up_to_then(home, parts):
    """Monday was killed after its look. Tuesday looked at the same items and promoted, and monday has to beat its candidate."""
    shop, items = Looks(home.root, "agent", "shop"), ["a", "b"]
    ledger, items = (SeveralLooks((shop,)), ["shop/a", "shop/b"]) if parts else (shop, items)
    ledger.renew("monday")  # before it has looked it counts all of them
    ledger.record("monday", "monday", items)
    ledger.record("tuesday", "tuesday", items[:1])
    assert ledger.seen("monday") == {}
    ledger.renew("monday")
    ledger.record("wednesday", "wednesday", items)
    assert ledger.seen("monday") == {items[0]: 1}
    assert ledger.record("monday", "monday", items) == Freshness(identities=2, fresh=1, looks=1.0)
    assert ledger.seen() == {items[0]: 3, items[1]: 2}


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
