"""Judge records whose turns an earlier run has stored."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def stored(desk, make):
    """Two turns of a session, read in by an earlier run; the trajectory's id."""
    desk.write("turns.jsonl", make.lines(make.turn("s", 1, "hi", "hey"), make.turn("s", 2, "hi", "hey", "more", "sure")))
    [row] = desk.rows(desk.ingest())
    return row["trajectory_id"]


def scores(desk) -> list[tuple]:
    return [(row["trajectory_id"], row["turn"], row["scorer"], row["value"], row["hints"]) for row in desk.stored("scores")]


def test_a_later_judgement_finds_its_turn(desk, make, stored):
    desk.write("judge.jsonl", make.lines(make.judged("s", 2, -1), make.judged("s", 3, 1), make.judged("other", 1, 1)))
    done = desk.ingest()
    assert scores(desk) == [(stored, 1, "imported/openclaw-turn/judge", -1.0, None)]
    assert (done.accepted, done.reading.unmatched) == (3, 2)


def test_an_orphan_makes_the_same_row_as_beside_its_turn(desk, make, stored):
    desk.write("judge.jsonl", make.lines(make.judged("s", 2, -1)))
    desk.ingest()
    later = desk.stored("scores")
    Path(desk.ingest().log).unlink()
    assert desk.rows(desk.ingest(), "scores") == later


def test_what_is_read_again_is_stored_once(desk, make, stored):
    desk.write("judge.jsonl", make.lines(make.judged("s", 2, -1)))
    desk.ingest()
    desk.write("judge.jsonl", make.lines(make.judged("s", 1, 1), make.judged("s", 2, -1)))
    done = desk.ingest()
    assert done.counts["repeated"] == 1
    assert [(turn, value) for _, turn, _, value, _ in scores(desk)] == [(1, -1.0), (0, 1.0)]


def test_another_opinion_of_a_turn_is_another_scorer(desk, make, stored):
    for value in (-1, 1):
        desk.append("judge.jsonl", make.lines(make.judged("s", 2, value)))
        desk.ingest()
    assert [(scorer, value) for _, _, scorer, value, _ in scores(desk)] == [
        ("imported/openclaw-turn/judge", -1.0),
        ("imported/openclaw-turn/judge/2", 1.0),
    ]


def test_a_hint_alone_does_not_change_the_score_of_its_turn(desk, make, stored):
    desk.append("judge.jsonl", make.lines(make.judged("s", 2, -1)))
    desk.ingest()
    hint = "Ask for the size first."
    desk.append("judge.jsonl", make.lines({"session_id": "s", "turn": 2, "accepted": True, "hint": hint, "votes": []}))
    desk.ingest()
    assert [(value, hints) for _, _, _, value, hints in scores(desk)] == [(-1.0, None), (-1.0, [hint])]


def test_a_late_judgement_is_redacted(desk, make, stored):
    said = make.judged("s", 2, -1) | {"representative_eval": "ann@harbour-tours.com was right"}
    desk.write("judge.jsonl", make.lines(said))
    desk.ingest()
    [row] = desk.stored("scores")
    assert "ann@harbour-tours.com" not in row["reason"]
    assert row["reason"].endswith("was right")


def test_each_turn_is_judged_in_the_trajectory_that_trains_it(desk, make, stored):
    third = make.turn("s", 3, "hi", "hey", "more", "sure", "and", "yes")
    report = [make.turn("s", 1, "hi", "hey"), make.turn("s", 2, "hi", "hey", "more", "sure"), third]
    desk.write("turns.jsonl", b"\n" + make.lines(*report))  # not the old file with an end: all of it is read again
    [again] = desk.rows(desk.ingest())
    assert again["kinds"] == ["side", "side", "main"]
    desk.write("judge.jsonl", make.lines(make.judged("s", 2, -1), make.judged("s", 3, 1)))
    assert desk.ingest().reading.unmatched == 0
    assert {(name, turn, value) for name, turn, _, value, _ in scores(desk)} == {
        (stored, 1, -1.0),
        (again["trajectory_id"], 2, 1.0),
    }
