"""What tells that a version is worse, and who can make it say so."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.serve.gateway.adapters import AdapterVersion
from clawpipe.serve.gateway.answers import Collected
from clawpipe.serve.serving.evidence import Answers, Asker, Evidence, worse
from clawpipe.serve.serving.follow import is_worse

GOOD = {"total": True, "failed": False, "empty": False, "runaway": False, "cut": False}


def gathered(*parts):
    """Evidence of (key, number of answers, kind) and (key, number of ratings, liked or not), each in a session of its own."""
    evidence = Evidence()
    for key, count, what in parts:
        for number in range(count):
            asker = Asker(key, f"{what}-{number}")
            if isinstance(what, bool):
                evidence.rate(what, asker)
            else:
                evidence.answer(GOOD | {what: True}, asker)
    return evidence


@pytest.mark.parametrize(
    ("new", "old", "why"),
    [
        (Answers(19, 19), Answers(100), ""),  # too few to say
        (Answers(20, 5), Answers(0), "25% of 20 answers are failed"),
        (Answers(20, 4), Answers(100), ""),
        (Answers(20, 0, 10), Answers(100, 0, 10), "50% of 20 answers are empty, 10% of 100 before"),
        (Answers(20, 0, 0, 20), Answers(100, 0, 0, 90), ""),  # so did the old one
        (Answers(20, 0, 0, 20), Answers(3), ""),  # nothing to compare with
        (Answers(40, 0, 0, 30), Answers(100, 0, 0, 50), "75% of 40 answers are runaway"),
        (Answers(30, 0, 0, 15, cut=15), Answers(100), ""),  # 15 tell something
        (Answers(40, 0, 0, 15, cut=20), Answers(100), "75% of 20 answers are runaway"),
        (Answers(1, rated=10, disliked=10, raters=1), Answers(200, rated=10, raters=1), ""),
        (Answers(1, rated=10, disliked=10, raters=2), Answers(200, rated=10, raters=1), "100% of 10 ratings are negative"),
    ],
)
def test_what_is_worse_than_before(new, old, why):
    found = worse(new, old)
    assert found.startswith(why)
    assert bool(found) == bool(why)


OLD = (("ann", 30, "total"), ("bob", 30, "total"), ("ann", 10, True), ("bob", 10, True))


@pytest.mark.parametrize(
    ("new", "goes_back"),
    [
        ([("ann", 100, "runaway")], False),
        ([("ann", 100, "failed")], False),
        ([("ann", 100, "empty"), ("bob", 5, "total")], False),
        ([("ann", 100, False)], False),
        ([("ann", 100, False), ("bob", 10, True)], False),
        ([("ann", 15, "runaway"), ("bob", 5, "runaway")], True),
        ([("ann", 15, "failed"), ("bob", 5, "failed")], True),
        ([("ann", 7, False), ("bob", 3, False)], True),
        ([("ann", 100, "cut"), ("bob", 100, "cut")], False),
    ],
)
def test_no_key_decides_alone_where_several_ask(new, goes_back):
    assert bool(is_worse(gathered(*new), gathered(*OLD))) == goes_back


def test_the_only_key_decides_by_answers_and_not_by_ratings():
    assert is_worse(gathered(("ann", 20, "failed")), gathered(("ann", 30, "total")))
    assert not is_worse(gathered(("ann", 20, False)), gathered(("ann", 30, True)))


def test_one_session_says_little():
    one = Evidence()
    for _ in range(100):
        one.answer(GOOD | {"runaway": True}, Asker("ann", "s"))
        one.rate(False, Asker("ann", "s"))
    assert (one.all().total, one.all().runaway, one.all().rated, one.seen) == (5, 5, 2, 100)


def test_requests_without_a_session_are_one_each():
    some = Evidence()
    for _ in range(30):
        some.answer(GOOD, Asker())
    assert some.all().total == 30


attack = st.lists(
    st.tuples(st.just("eve"), st.integers(1, 40), st.sampled_from(["failed", "empty", "runaway", "cut", False, True]))
)
honest = st.lists(st.tuples(st.sampled_from(["ann", "bob"]), st.integers(1, 40), st.sampled_from(["total", True])))


@given(attack, honest, attack)
def test_whatever_one_key_does_the_version_stays(new, others, old):
    """The others' answers are good, and they like them."""
    assert not is_worse(gathered(*new, *others), gathered(*OLD, *old))


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
def test_a_cut_at_the_clients_own_limit_is_no_evidence(limit):
    class Counting(AdapterVersion):
        def __init__(self):
            self.evidence, self.counts = Evidence(), Counter()

    version, collected = Counting(), Collected()
    collected.add({"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "length"}]})
    version.count_answer(collected, False, Asker("ann", "s1"), {limit: 1})
    assert version.answers == Answers(total=1, cut=1)
    version.count_answer(collected, False, Asker("ann", "s2"), {limit: None})
    assert version.answers == Answers(total=2, cut=1, runaway=1, empty=1)
