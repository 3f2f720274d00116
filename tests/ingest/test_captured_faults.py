"""Captured replies that must not teach, in segments of this version and of earlier ones: they are kept as context and counted."""

from __future__ import annotations

import json

import pytest

from clawpipe.data.capture.records import Answer, Feedback, Turn, line_of

ASKED = {"role": "user", "content": "How many mugs?"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR"}}
SHOWN = {"role": "user", "content": [{"type": "text", "text": "look"}, PICTURE]}
THANKS = {"role": "user", "content": "Thanks, and cups?"}


def said(text, **more):
    return {"role": "assistant", "content": text} | more


def turn(number, messages, text, reason="stop", tokens=None, message=None, **fields):
    names = {"turn_type": "main", "session_from": "x", "turn_type_from": "x", "model": "agent", "response_id": f"r{number}"}
    recorded = {"prompt_token_ids": list(range(number * 10)), "temperature": 0.8, "logprobs_kind": "tempered"} if tokens else {}
    answer = Answer(message or said(text), reason, tokens, tokens and [-0.5] * len(tokens))
    request = {"model": "agent", "messages": messages}
    when = 1_700_000_000.0 + number
    return Turn(f"t{number}", when, "ann", f"s-{number}", request=request, answers=[answer], **names | recorded | fields)


def rows_of(desk, *records):
    desk.write("a.jsonl", b"".join(map(line_of, records)))
    done = desk.ingest()
    return {row["session_id"]: row for row in desk.rows(done)}, done


def kinds(row):
    return [one["kind"] for one in row["turns"]] if row["tokens"] == "recorded" else row["kinds"]


@pytest.mark.parametrize("tokens", [None, [10, 11]])
@pytest.mark.parametrize(
    ("reason", "ending", "kind", "status"),
    [
        ("stop", "complete", "main", "completed"),
        ("tool_calls", "complete", "main", "completed"),
        ("length", "complete", "main", "truncated"),
        ("content_filter", "complete", "side", "aborted"),
        ("error", "complete", "side", "aborted"),
        ("abort", "complete", "side", "aborted"),
        (None, "complete", "side", "aborted"),  # an earlier gateway took an error event and the mark for a whole answer
        ("stop", "broken", "side", "aborted"),
        (None, "cancelled", "side", "aborted"),
    ],
)
def test_only_an_answer_that_was_finished_teaches(desk, tokens, reason, ending, kind, status):
    rows, done = rows_of(desk, turn(1, [ASKED], "57 mugs.", reason, tokens, ending=ending))
    row = rows["s-1"]
    assert (kinds(row), row["status"]) == ([kind], status)
    assert done.reading.silent == ({} if kind == "main" else {"turns that were cut short": 1})


@pytest.mark.parametrize("tokens", [None, [10, 11]])
@pytest.mark.parametrize("type_from", ["x", "content"])
def test_a_picture_in_the_history_makes_a_side_turn(desk, tokens, type_from):
    seen = turn(1, [SHOWN], "A mug.", "stop", tokens, turn_type="main" if type_from == "x" else "side", turn_type_from=type_from)
    later = turn(2, [SHOWN, said("A mug."), THANKS], "No cups.", "stop", tokens)
    rows, done = rows_of(desk, seen, later, turn(3, [ASKED], "57 mugs.", "stop", tokens))
    assert [kinds(rows[f"s-{number}"])[-1] for number in (1, 2, 3)] == ["side", "side", "main"]
    assert done.reading.silent == {"turns with parts that are no text": 2}
    assert "2 turns with parts that are no text" in "".join(done.reading.warnings())


def test_a_correction_of_such_a_turn_is_no_pair(desk):
    records = [turn(1, [SHOWN], "A mug."), turn(2, [ASKED], "57", None), turn(3, [ASKED], "57 mugs.")]
    fixes = [Feedback(f"f{n}", 1_700_000_100.0, "ann", response_id=f"t{n}", correction="Better.") for n in (1, 2, 3)]
    _, done = rows_of(desk, *records, *fixes)
    assert done.datasets["preference_pairs"].rows == 1
    assert done.reading.silent["corrections of such turns"] == 2


def test_nor_is_a_later_one(desk):
    desk.write("a.jsonl", b"".join(map(line_of, [turn(1, [SHOWN], "A mug."), turn(3, [ASKED], "57 mugs.")])))
    desk.ingest()
    fixes = [Feedback(f"f{n}", 1_700_000_100.0, "ann", response_id=f"t{n}", correction="Better.") for n in (1, 3)]
    desk.write("b.jsonl", b"".join(map(line_of, fixes)))
    assert desk.ingest().datasets["preference_pairs"].rows == 1


def test_an_answer_without_words_teaches_nothing(desk):
    rows, done = rows_of(desk, turn(1, [ASKED], ""))
    assert (rows["s-1"]["kinds"], done.reading.silent) == (["side"], {"turns without content": 1})


def test_a_custom_call_keeps_its_name_and_input(desk):
    call = {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    rows, _ = rows_of(desk, turn(1, [ASKED], "", "tool_calls", message=said(None, tool_calls=[call])))
    [made] = rows["s-1"]["messages"][-1]["tool_calls"]
    assert (made["name"], json.loads(made["arguments"])) == ("sql", {"input": "SELECT 1"})


def test_a_history_that_records_repeat_is_no_turn_of_theirs(desk):
    """Two sessions of which the second says the first one's answer again, tokenized anew: two turns, and not three."""
    first = turn(1, [ASKED], "57 mugs.", tokens=[10])
    second = turn(2, [ASKED, said("57 mugs."), THANKS], "No.", tokens=[12], turn_type="side")
    _, done = rows_of(desk, first, second)
    assert (done.counts["turns"], done.counts["side_turns"]) == (2, 1)


def test_a_side_record_of_openclaw_counts_once(desk):
    shared = {"session_id": "s", "tools": [], "prompt_text": "", "tool_calls": []}
    first = shared | {"turn": 1, "messages": [ASKED], "response_text": "57 mugs.", "turn_type": "main"}
    second = shared | {"turn": 2, "messages": [ASKED, said("57 mugs."), THANKS], "response_text": "beat", "turn_type": "heartbeat"}
    desk.write("oc.jsonl", b"".join(json.dumps(one).encode() + b"\n" for one in (first, second)))
    done = desk.ingest()
    assert (done.counts["turns"], done.counts["side_turns"]) == (2, 1)
