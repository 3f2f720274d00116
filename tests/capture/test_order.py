"""Turns come in the order in which they were written, whatever the clocks of one or two gateways said."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.data.capture.order import in_written_order
from clawpipe.data.capture.records import Done, End
from clawpipe.data.capture.segments import Segment, segments
from clawpipe.data.capture.sessions import sessions_of
from tests.capture.test_sessions import USER, said, turn

BLUE, GREEN = "captured/20261125T120000-000000001-7.jsonl", "captured/20261125T115900-000000001-8.jsonl"


def conversation(times):
    """Turns of one conversation, each of which goes on with the one before, at these times."""
    history, turns = [USER], []
    for number, at in enumerate(times, 1):
        turns.append(turn(number, list(history), f"a{number}", time=at))
        history += [said(f"a{number}"), {"role": "user", "content": f"q{number}"}]
    return turns


def told(located):
    [session] = sessions_of(in_written_order(located)).values()
    return [(one.record.id, one.number, one.relation) for one in session.turns]


CHAIN = [("t1", 1, "starts"), ("t2", 2, "continues"), ("t3", 3, "continues"), ("t4", 4, "continues")]


@pytest.mark.parametrize("times", [(100, 101, 102, 103), (100, 95, 96, 97), (100, 1, 101, 50), (4, 3, 2, 1)])
def test_a_clock_that_was_set_loses_no_history(times):
    assert told((BLUE, line, one) for line, one in enumerate(conversation(times))) == CHAIN


@pytest.mark.parametrize("shift", [-3600, -2, 0, 2, 3600])
def test_two_gateways_with_clocks_apart_share_a_session(shift):
    one, two, three, four = conversation([100, 101 + shift, 102, 103 + shift])
    assert told([(GREEN, 1, two), (GREEN, 2, four), (BLUE, 1, one), (BLUE, 2, three)]) == CHAIN


@given(
    st.lists(st.floats(0, 1e9), min_size=4, max_size=4), st.permutations(range(4)), st.lists(st.booleans(), min_size=4, max_size=4)
)
def test_no_times_and_no_order_change_what_continues_what(times, order, at_blue):
    turns = conversation(times)
    assert told((BLUE if at_blue[place] else GREEN, place, turns[place]) for place in order) == CHAIN


def test_turns_that_continue_nothing_keep_the_order_of_lines():
    """Feedback names a turn by its number."""
    turns = [
        turn(1, [USER], "a", time=50),
        turn(2, [{"role": "user", "content": "other"}], "b", time=9),
        turn(3, [USER], "c", time=8),
    ]
    assert [name for name, _, _ in told((BLUE, line, one) for line, one in enumerate(turns))] == ["t1", "t2", "t3"]


@pytest.mark.parametrize(("after", "closed"), [([], True), ([turn(2, [USER], "b", time=3)], False)])
def test_a_session_has_ended_when_nothing_was_written_after(after, closed):
    records = [turn(1, [USER], "a", time=100), Done(90, "k", "s"), *after, End(91)]
    [session] = sessions_of(in_written_order((BLUE, line, one) for line, one in enumerate(records))).values()
    assert session.is_closed(101) == closed


def test_names_of_segments_sort_also_if_the_clock_is_set_back(tmp_path, monkeypatch):
    made = []
    for now in (2_000_000_000.5, 1_000_000_000.25, 1_000_000_000.25, 3_000_000_000.0):
        monkeypatch.setattr(time, "time_ns", lambda now=now: int(now * 10**9))
        segment = Segment(tmp_path)
        segment.close()
        made.append(segment.path)
    assert segments(tmp_path) == made
