"""Whether a tool failed: one table for counts, filters and judges."""

import json

import pytest

from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.open import open_store
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.message import read_messages
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.data.wire.failures import call_failed, failed_results, mark_of, reports_failure
from clawpipe.play.judging.exchanges import exchanges_of
from clawpipe.play.judging.rules import RulesJudge
from clawpipe.play.judging.turn_faults import FAILED, signs_of_fault

FAILURES = [
    '{"error": "no such file"}',
    '{"error": true}',
    '{"error": {"code": 3}}',
    '{"error": ["a"]}',
    '{"error": 1, "rows": 5}',
    '{"content": {"error": "no"}}',
    '{"success": false}',
    '{"ok": false, "detail": "no"}',
    '{"isError": true, "content": []}',
    '{"is_error": true}',
    "error: no such item",
    "ERROR: no",
    "Error: ENOENT",
    "\n fatal: not a git repository",
    "fatal error: x.h: No such file",
    "ValueError: bad",
    "java.lang.NullPointerException: at",
    'Traceback (most recent call last):\n  File "x.py"',
    "bash: foo: command not found\n",
]
SUCCESSES = [
    '{"error": false, "rows": 5}',
    '{"error": "", "output": "ok"}',
    '{"error": " "}',
    '{"error": []}',
    '{"error": {}}',
    '{"error": 0}',
    '{"error": null, "exit_code": 2}',
    '{"content": {"error": null}}',
    '{"content": {"error": false}}',
    '{"isError": false, "error": "none that we know of"}',
    '{"success": true}',
    '{"success": null}',
    '{"status": "failed", "job": 3}',  # what the tool was asked for
    "[1]",
    "57",
    "null",
    "Error 404 means that a page is missing",
    "Errors are listed below",
    "error handling in Rust: a guide",
    "an error: no",
    "No error: all is well",
    "Exceptions prove the rule",
    "The command was not found in the manual",
]


@pytest.mark.parametrize(("answer", "failed"), [*((one, True) for one in FAILURES), *((one, False) for one in SUCCESSES)])
def test_what_an_answer_says(answer, failed):
    assert call_failed(answer) is reports_failure(answer) is failed
    for mark in (True, False):  # which wins
        assert call_failed(answer, mark) is reports_failure(answer, mark) is mark


@pytest.mark.parametrize("answer", ["", " \n"])
def test_an_empty_answer_counts_but_is_held_against_no_turn(answer):
    assert (call_failed(answer), reports_failure(answer)) == (True, False)


@pytest.mark.parametrize(
    ("record", "mark"),
    [
        ({"is_error": True}, True),
        ({"isError": True}, True),
        ({"failed": True}, True),
        ({"error": True}, True),
        ({"error": "timeout"}, True),
        ({"status": "error"}, True),
        ({"status": "failed"}, True),
        ({"state": "output-error"}, True),
        ({"is_error": False}, False),
        ({"failed": False}, False),
        ({"error": False}, False),
        ({"is_error": False, "status": "error"}, True),
        ({"error": ""}, None),
        ({"is_error": None}, None),
        ({"is_error": "yes"}, None),
        ({"status": "success"}, None),
        ({}, None),
    ],
)
def test_what_a_record_marks(record, mark):
    assert mark_of(record) is mark


CALLS = [{"id": "c", "type": "function", "function": {"name": "stock", "arguments": "{}"}}]
USED = {"type": "tool_use", "id": "c", "name": "stock", "input": {}}


def asked(*said):
    return {
        "session_id": "s",
        "messages": [{"role": "user", "content": "How many?"}, *said, {"role": "assistant", "content": "57."}],
    }


def openai(text, **marks):
    return asked(
        {"role": "assistant", "content": None, "tool_calls": CALLS}, {"role": "tool", "tool_call_id": "c", "content": text} | marks
    )


def anthropic(text, **marks):
    block = {"type": "tool_result", "tool_use_id": "c", "content": text} | marks
    return asked({"role": "assistant", "content": [USED]}, {"role": "user", "content": [block]})


@pytest.mark.parametrize("write", [openai, anthropic])
@pytest.mark.parametrize(
    ("text", "mark", "failed"), [("57", True, 1), ("error: 57", False, 0), ("error: 57", None, 1), ("57", None, 0)]
)
def test_a_mark_reaches_counts_and_judges(write, text, mark, failed, home, tmp_path):
    marks = {} if mark is None else {"is_error": mark}
    assert read_chat(write(text, **marks))[0].tool_errors == failed
    (tmp_path / "log.jsonl").write_text(json.dumps(write(text, **marks)) + "\n")
    done = ingest(home, [str(tmp_path / "log.jsonl")], Options())
    [row] = read_dataset(open_store(home), done.datasets["trajectories"]).to_pylist()
    assert row["tool_errors"] == failed
    assert failed_results(row["extra"]) == ({} if mark is None else {2: mark})
    [turn, _] = exchanges_of(row)
    assert (FAILED in signs_of_fault(turn, offered=True)) is bool(failed)
    assert [score.reason for score in RulesJudge().score({}, row) if score.turn == 0] == ["failed-call"] * failed


def test_marks_stay_with_their_results():
    blocks = [{"type": "tool_result", "tool_use_id": name, "content": "1", "is_error": name == "b"} for name in "abc"]
    calls = [USED | {"id": name} for name in "abc"]
    given = [{"role": "assistant", "content": calls}, {"role": "user", "content": [*blocks, {"type": "text", "text": "Well?"}]}]
    read = read_messages([{"role": "user", "content": "q"}, *given])
    assert read.failed == {2: False, 3: True, 4: False}
    assert [message.tool_call_id for message in read.messages[2:5]] == ["a", "b", "c"]
