"""The log of decisions: none is lost, none overwrites what its author has not seen, and none outlives its row."""

import threading

import pytest

from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError, DataError
from clawpipe.record.reviews.decisions import DecidedError
from clawpipe.record.reviews.open import decisions_file, last_decisions, open_decisions


@pytest.fixture
def decisions(tmp_path):
    return open_decisions(Home(tmp_path))


def test_a_decision_is_read_as_it_was_made(decisions):
    made = decisions.decide("a", "edited", " ann ", seen=0, reason="better so", turn=2, text="four\nlines")
    assert decisions.last() == {"a": made}
    assert (made.verdict, made.by, made.reason, made.turn, made.text) == ("edited", "ann", "better so", 2, "four\nlines")
    assert made.at.endswith("+00:00")


def test_who_has_not_seen_a_decision_does_not_replace_it(decisions):
    first = decisions.decide("a", "approved", "ann", seen=0)
    with pytest.raises(DecidedError, match="approved by ann at "):
        decisions.decide("a", "rejected", "bob", seen=0)
    second = decisions.decide("a", "rejected", "bob", seen=first.number)
    with pytest.raises(DecidedError, match="rejected by bob at "):
        decisions.decide("a", "approved", "cleo", seen=first.number)
    assert decisions.last() == {"a": second}
    assert decisions.history("a") == [first, second]


def test_what_was_taken_back_counts_no_more(decisions, tmp_path):
    made = decisions.decide("a", "approved", "ann", seen=0)
    decisions.decide("a", "open", "bob", seen=made.number)
    assert last_decisions(Home(tmp_path)) == {}


def test_reviewers_at_once_lose_no_decision(tmp_path):
    """Each with a connection of their own, as two processes have; of those who decide about one row one is heard."""
    refused, barrier = [], threading.Barrier(4, timeout=60)

    def review(name):
        own = open_decisions(Home(tmp_path))
        barrier.wait()
        for number in range(20):
            own.decide(f"{name}-{number}", "approved", name, seen=0)
            try:
                own.decide(f"shared-{number}", "rejected", name, seen=0)
            except DecidedError:
                refused.append(number)
        own.close()

    threads = [threading.Thread(target=review, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = last_decisions(Home(tmp_path))
    assert sorted(found) == sorted([f"{name}-{n}" for name in (*"abcd", "shared") for n in range(20)])
    assert sorted(refused) == sorted(list(range(20)) * 3)


def test_removed_decisions_leave_no_byte(decisions, tmp_path):
    decisions.decide("a", "edited", "ann", seen=0, turn=0, text="a very private answer")
    decisions.decide("b", "approved", "ann", seen=0)
    assert decisions.remove(["a"]) == 1
    assert list(decisions.last()) == ["b"]
    decisions.close()
    assert not any(b"very private" in file.read_bytes() for file in decisions_file(Home(tmp_path)).parent.iterdir())


def test_a_decision_of_nobody_is_refused(decisions):
    with pytest.raises(ConfigError, match="the name of who decides"):
        decisions.decide("a", "approved", "  ", seen=0)
    assert decisions.last() == {}


def test_looking_at_no_decisions_makes_no_file(tmp_path):
    assert last_decisions(Home(tmp_path)) == {}
    assert not decisions_file(Home(tmp_path)).exists()


def test_a_damaged_file_is_said_in_words(tmp_path):
    decisions_file(Home(tmp_path)).parent.mkdir()
    decisions_file(Home(tmp_path)).write_bytes(b"no database" * 1000)
    with pytest.raises(DataError, match="the decisions of people cannot be read"):
        last_decisions(Home(tmp_path))
