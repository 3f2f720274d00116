"""Segments of the gateway: each reply is stored exactly once, with its tokens, however often and whenever they are read."""

from __future__ import annotations

import json
import time

import pytest

from clawpipe.core.contracts.check import check_parquet
from clawpipe.core.contracts.odcs import load_contract
from clawpipe.core.store.datasets import dataset_files
from clawpipe.data.capture.records import Answer, Done, Feedback, Turn, line_of

ASKED = {"role": "user", "content": "How many mugs?"}
THANKS = {"role": "user", "content": "Thanks, and cups?"}
LONG_AGO = 1_700_000_000.0


def said(text):
    return {"role": "assistant", "content": text}


def turn(number, messages, *texts, time=None, session="s-1", prompt=None, tokens=None, **fields):
    answers = [
        Answer(said(text), "stop", tokens, tokens and [-0.25 * (1 + place) for place in range(len(tokens))]) for text in texts
    ]
    fields = {
        "turn_type": "main",
        "session_from": "x",
        "turn_type_from": "x",
        "model": "agent",
        "response_id": f"r{number}",
    } | fields
    when = LONG_AGO + number if time is None else time
    request = {"model": "agent", "messages": messages}
    return Turn(f"t{number}", when, "ann", session, request=request, answers=answers, prompt_token_ids=prompt, **fields)


def first(**fields):
    tokens = {"prompt": [1, 2, 3], "tokens": [10, 11], "temperature": 0.8, "logprobs_kind": "tempered", "policy_version": "f" * 16}
    return turn(1, [ASKED], "57 mugs.", **tokens | fields)


def second(**fields):
    tokens = {"prompt": [1, 2, 3, 10, 11, 4], "tokens": [12], "temperature": 0.8, "logprobs_kind": "tempered"}
    return turn(2, [ASKED, said("57 mugs."), THANKS], "No.", **tokens | {"policy_version": "f" * 16} | fields)


def segment(*records) -> bytes:
    return b"".join(map(line_of, records))


def test_a_session_becomes_one_row_of_its_tokens_under_contract(desk):
    desk.write("a.jsonl", segment(first(), second(user="ann@host", parent="s-0")))
    done = desk.ingest()
    [row] = desk.rows(done)
    assert row["token_ids"] == [1, 2, 3, 10, 11, 4, 12]
    assert row["loss_mask"] == [False, False, False, True, True, False, True]
    assert row["logprobs"] == [0, 0, 0, -0.25, -0.5, 0, -0.25]
    assert [(one["start"], one["end"], one["kind"]) for one in row["turns"]] == [(3, 5, "main"), (6, 7, "main")]
    assert (row["source"], row["tokens"], row["temperature"], row["logprobs_kind"]) == ("captured", "recorded", 0.8, "tempered")
    assert (row["session_id"], row["user_id"], row["policy_version"]) == ("s-1", "ann@host", "f" * 16)
    assert [one["content"] for one in row["messages"]] == ["How many mugs?", "57 mugs.", "Thanks, and cups?", "No."]
    assert json.loads(row["extra"])["parent_session_id"] == "s-0"
    report = check_parquet(dataset_files(desk.store, done.datasets["trajectories"]), load_contract("trajectories"), 10)
    assert not report.at_fault


def test_a_prompt_tokenized_anew_begins_another_row(desk):
    desk.write("a.jsonl", segment(first(), second(prompt=[1, 2, 3, 99, 4])))
    one, two = sorted(desk.rows(desk.ingest()), key=lambda row: len(row["token_ids"]))
    assert [message["role"] for message in one["messages"]] == ["user", "assistant", "user"]  # what followed is there to be judged
    assert (one["token_ids"], two["token_ids"]) == ([1, 2, 3, 10, 11], [1, 2, 3, 99, 4, 12])
    assert two["loss_mask"] == [False] * 5 + [True]


def test_a_turn_of_unknown_temperature_gives_no_ratio(desk):
    desk.write("a.jsonl", segment(first(temperature=None)))
    [row] = desk.rows(desk.ingest())
    assert (row["temperature"], row["logprobs_kind"]) == (1.0, "none")


def test_text_side_turns_and_broken_answers(desk):
    plain = {"prompt": None, "tokens": None, "logprobs_kind": "none", "policy_version": None}
    desk.write(
        "a.jsonl",
        segment(
            first(**plain),
            turn(3, [ASKED], "beat", session="s-2", turn_type="side"),
            turn(4, [ASKED], "half an ans", session="s-3", ending="cancelled"),
        ),
    )
    rows = {row["session_id"]: row for row in desk.rows(desk.ingest())}
    assert {name: (row["tokens"], row["kinds"], row["status"]) for name, row in rows.items()} == {
        "s-1": ("none", ["main"], "completed"),
        "s-2": ("none", ["side"], "completed"),
        "s-3": ("none", ["side"], "aborted"),
    }


def test_a_session_is_read_once_when_it_has_ended(desk):
    now = time.time()
    desk.write("a.jsonl", segment(turn(3, [ASKED], "old", session="s-0"), first(time=now - 60)))
    done = desk.ingest()
    assert [row["session_id"] for row in desk.rows(done)] == ["s-0"]
    assert done.reading.lines == done.accepted == 1
    assert "1 lines are of sessions that go on" in "".join(done.reading.warnings())
    desk.write("b.jsonl", segment(second(time=now - 30), Done(now - 20, "ann", "s-1")))  # a's bytes do not change
    [row] = desk.rows(desk.ingest())
    assert row["token_ids"] == [1, 2, 3, 10, 11, 4, 12]
    assert desk.ingest().datasets["trajectories"].rows == 0
    assert len(desk.stored()) == 2


def test_a_home_says_how_long_an_idle_session_goes_on(desk, home):
    now = time.time()
    desk.write("a.jsonl", segment(first(time=now - 60)))
    assert desk.rows(desk.ingest()) == []
    home.root.mkdir(exist_ok=True)
    (home.root / "sessions.yaml").write_text("idle_seconds: 30")
    assert [row["session_id"] for row in desk.rows(desk.ingest())] == ["s-1"]
    desk.write("b.jsonl", segment(first(time=now - 7200, session="s-2")))
    (home.root / "sessions.yaml").write_text("idle_seconds: 86400")
    assert desk.rows(desk.ingest()) == []


def test_a_session_that_comes_back_after_its_end_repeats_no_turn(desk):
    """The row of the first turn is stored; then the same lines are read with more, and from the start, too."""
    desk.write("a.jsonl", segment(first(done=True)))
    desk.ingest()
    desk.append("a.jsonl", segment(second(done=True)))
    desk.ingest()
    desk.write("copy.jsonl", (desk.folder / "a.jsonl").read_bytes())
    desk.ingest()
    rows = desk.stored()
    assert sorted([sum(row["loss_mask"]) for row in rows]) == [1, 2]
    later = next(row for row in rows if sum(row["loss_mask"]) == 1)
    assert later["token_ids"] == [1, 2, 3, 10, 11, 4, 12]
    assert later["loss_mask"] == [False] * 6 + [True]


def test_a_line_that_is_being_written_is_left_for_later(desk):
    data = segment(first(), second())
    for length in range(len(segment(first())) + 10, len(data), 150):
        desk.write("a.jsonl", data[:length])
        done = desk.ingest(log="partly")
        assert done.reading.reasons() == {}
    desk.write("a.jsonl", data)
    assert sum(sum(row["loss_mask"]) for row in [*desk.stored(), *desk.rows(desk.ingest(log="partly"))][:2]) == 3


def test_a_damaged_line_is_rejected_and_the_others_are_read(desk):
    data = segment(first())
    other = segment(turn(5, [ASKED], "fine", session="s-5"))
    desk.write("a.jsonl", data.replace(b"57 mugs", b"58 mugs") + other)
    done = desk.ingest()
    assert [row["session_id"] for row in desk.rows(done)] == ["s-5"]
    assert done.reading.reasons() == {"damaged: the CRC does not match": 1}


def test_all_answers_are_kept_once(desk):
    again = turn(2, [ASKED], "Sixty.", prompt=[1, 2, 3], tokens=[30], temperature=0.8, logprobs_kind="tempered")
    desk.write("a.jsonl", segment(first(), again, turn(6, [ASKED], "a", "b", session="s-6")))
    rows = desk.rows(desk.ingest())
    assert sorted(row["messages"][1]["content"] for row in rows) == ["57 mugs.", "Sixty.", "a", "b"]
    assert len({row["item_id"] for row in rows}) == 1  # alternatives of one prompt


def test_sessions_that_begin_alike_are_different_items(desk):
    example = [{"role": "user", "content": "How many pens?"}, said("9 pens.")]
    questions = {f"s-{number}": {"role": "user", "content": f"How many mugs in {number}?"} for number in range(3)}
    turns = [turn(number, [*example, asked], "6.", session=name) for number, (name, asked) in enumerate(questions.items())]
    on = [*example, questions["s-0"], said("6."), THANKS]
    desk.write(
        "a.jsonl", segment(*turns, turn(9, on, "Yes.", session="s-0"), turn(10, [*example, questions["s-0"]], "6.", session="s-9"))
    )
    items = {row["session_id"]: row["item_id"] for row in desk.rows(desk.ingest())}
    assert len(set(items.values())) == 3
    assert items["s-0"] == items["s-9"]


@pytest.mark.parametrize("late", [False, True])
def test_feedback_becomes_a_score_of_its_turn_even_late(desk, late):
    opinions = [
        Feedback("f1", LONG_AGO + 5, "ann", response_id="r1", value=1.0),
        Feedback("f2", LONG_AGO + 6, "ann", session="s-1", turn=2, value=-0.5, comment="too short"),
        Feedback("f3", LONG_AGO + 7, "somebody else", response_id="r1", value=-1.0),
    ]
    if late:
        desk.write("a.jsonl", segment(first(), second()))
        [row] = desk.rows(desk.ingest())
        desk.append("a.jsonl", segment(*opinions))
        done = desk.ingest()
    else:
        desk.write("a.jsonl", segment(first(), second(), *opinions))
        done = desk.ingest()
        [row] = desk.rows(done)
    scores = [(one["trajectory_id"], one["turn"], one["value"], one["origin"], one["reason"]) for one in desk.rows(done, "scores")]
    name = row["trajectory_id"]
    assert sorted(scores) == [(name, 0, 1.0, "user", ""), (name, 1, -0.5, "user", "too short")]
    assert done.reading.unmatched == 1
    desk.write("again.jsonl", (desk.folder / "a.jsonl").read_bytes())
    assert "scores" not in desk.ingest().datasets


def test_feedback_by_turn_number_finds_a_turn_read_earlier(desk):
    """Numbers count from the beginning of the session, and not of what is new in the file."""
    desk.write("a.jsonl", segment(first(done=True)))
    desk.ingest()
    desk.append("a.jsonl", segment(second(done=True), Feedback("f", LONG_AGO, "ann", session="s-1", turn=2, value=1.0)))
    done = desk.ingest()
    [row], [score] = desk.rows(done), desk.rows(done, "scores")
    assert json.loads(row["extra"])["turns"][0]["turn"] == 2
    assert (score["trajectory_id"], score["turn"]) == (row["trajectory_id"], 1)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("named", [{"response_id": "t1"}, {"session": "s-1", "turn": 1}])
def test_a_correction_becomes_a_preference_pair_even_late(desk, late, named):
    desk.write("a.jsonl", segment(first(), second()))
    if late:
        desk.ingest()
    somebody_else = Feedback("g", LONG_AGO, "bob", correction="None.", **named)
    desk.append("a.jsonl", segment(Feedback("f", LONG_AGO, "ann", correction="58 mugs.", **named), somebody_else))
    [pair] = desk.rows(desk.ingest(), "preference_pairs")
    desk.write("again.jsonl", (desk.folder / "a.jsonl").read_bytes())
    assert "preference_pairs" not in desk.ingest().datasets
    assert (pair["session_id"], json.loads(pair["extra"])) == ("s-1", {"key": "ann", "feedback": "f", "turn": "t1"})
    assert [[one["content"] for one in pair[side]] for side in ("prompt", "chosen", "rejected")] == [
        ["How many mugs?"],
        ["58 mugs."],
        ["57 mugs."],
    ]


def test_a_forgotten_session_is_not_read(desk):
    from clawpipe.data.forgotten.subject import Subject
    from clawpipe.record.removal.forget import forget

    forget(desk.home, Subject(session="s-1"))
    desk.write("a.jsonl", segment(first(), turn(3, [ASKED], "by a sub-agent", session="s-2", parent="s-1")))
    assert desk.rows(desk.ingest()) == []
