"""Files of mixed formats: every line is accounted for."""

import gzip
import json

import pytest
from typer.testing import CliRunner

from clawpipe.cli.main import app
from clawpipe.data.importers.read.read import read_stream
from clawpipe.data.importers.read.reading import Reading
from clawpipe.data.importers.record import Origin
from tests.importers.reading import read_files

CHAT = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hey"}], "session_id": "a"}
HERMES = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "completed": False}
GROUP = {
    "tokens": [[1, 2], [1, 3]],
    "masks": [[-100, 2], [-100, 3]],
    "scores": [1, 0],
    "messages": [CHAT["messages"], CHAT["messages"]],
}
TURN = {"session_id": "cron:1", "turn": 1, "messages": [{"role": "user", "content": "ping"}], "response_text": "pong"}
JUDGE = {"session_id": "cron:1", "turn": 1, "score": 1, "votes": [1]}


@pytest.fixture
def folder(tmp_path):
    lines = [json.dumps(row).encode() for row in (CHAT, HERMES, GROUP, {"what": 1})]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*lines, b"", b'{"cut']) + b"\n")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"\n".join(json.dumps(row).encode() for row in (JUDGE, TURN))))
    return tmp_path


def test_accepted_and_refused_lines_add_up(folder):
    reading = read_files([str(folder)])
    assert (reading.files, reading.lines) == (2, 8)
    assert reading.formats == {"chat": 1, "hermes": 1, "atropos": 1, "openclaw-turn": 1, "openclaw-judge": 1}
    assert reading.reasons() == {"no known format": 1, "blank line": 1, "not JSON": 1}
    assert [refusal.line for refusal in reading.refused] == [4, 5, 6]
    text = (folder / "a.jsonl").read_bytes()
    assert text[reading.refused[2].offset :].startswith(b'{"cut')
    assert len(reading.conversations) == 5
    assert reading.conversations[-1].judgements[0].value == 1  # judged before it was read


def test_a_file_that_breaks_off_gives_what_it_has(folder):
    packed = (folder / "b.jsonl.gz").read_bytes()
    (folder / "b.jsonl.gz").write_bytes(packed[:-9])
    reading = read_files([str(folder / "b.jsonl.gz")])
    assert [refusal.reason for refusal in reading.refused] == ["file cannot be read on: EOFError"]


def test_the_command_counts_and_shows(folder):
    facts = json.loads(CliRunner().invoke(app, ["inspect", str(folder), "--json"]).output)
    assert facts["lines"] == facts["accepted"] + sum(facts["refused"].values())
    assert facts["turns"] == {"main": 4, "side": 1}
    assert (facts["with_tokens"], facts["scored"]) == (2, 4)
    shown = CliRunner().invoke(app, ["inspect", str(folder / "b.jsonl.gz")]).output
    assert "pong" in shown
    assert "every turn is a side turn" in shown


def test_records_come_while_the_files_are_read_and_sessions_last(tmp_path):
    lines = [json.dumps(row) for row in (TURN, CHAT, {"what": 1}, HERMES)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    reading = Reading()
    stream = read_stream([str(tmp_path)], reading=reading)
    assert next(stream).session == "a"
    assert (reading.lines, reading.accepted) == (2, 2)
    refused, hermes, turn = stream
    assert (refused.reason, refused.line, refused.data) == ("no known format", 3, b'{"what": 1}')
    assert [(record.origin.format, record.origin.line) for record in (hermes, turn)] == [("hermes", 4), ("openclaw-turn", 1)]


def test_what_was_added_to_a_file_is_read_alone(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(CHAT) + "\n" + '{"half')
    first = read_files([str(file)])
    with file.open("a") as stream:
        stream.write('": 1}\n' + json.dumps(HERMES) + "\n")
    [refused, added] = read_stream([str(file)], after=first.places)
    assert (refused.line, refused.offset, refused.reason) == (2, len(json.dumps(CHAT)) + 1, "no known format")
    assert added.origin == Origin("hermes", str(file), 3)


def test_what_was_added_to_a_packed_file_is_read_alone(tmp_path):
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(CHAT).encode() + b"\n"))
    places = read_files([str(file)]).places
    file.write_bytes(file.read_bytes() + gzip.compress(json.dumps(HERMES).encode() + b"\n"))
    [added] = read_stream([str(file)], after=places)
    assert added.origin.line == 2


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("auto", {}),
        ("openclaw", {"not of the format openclaw": 3}),
        ("openclaw-turn", {"not of the format openclaw-turn": 4}),
        ("hermes", {"not of the format hermes": 4}),
    ],
)
def test_a_named_format_refuses_all_others(tmp_path, name, reasons):
    rows = (TURN, JUDGE, CHAT, HERMES, GROUP)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reading = read_files([str(tmp_path)], name)
    assert reading.lines == 5 == reading.accepted + sum(reading.reasons().values())
    assert reading.reasons() == reasons


def test_a_line_of_many_conversations_is_refused_as_a_whole(tmp_path):
    unsound = GROUP | {"inference_logprobs": [[1.0, -0.5], [1.0, -2e4]]}
    (tmp_path / "a.jsonl").write_text(json.dumps(unsound) + "\n")
    reading = read_files([str(tmp_path)])
    assert reading.conversations == []
    assert reading.reasons() == {"log-prob of a sampled token out of range": 1}


def test_a_temperature_that_no_column_holds_refuses_its_line(tmp_path):
    """A whole number beyond the exact doubles; it ended the ingest of all other files."""
    answer = {"message": {"content": "a"}, "token_ids": [2], "logprobs": {"content": [{"token": "a", "logprob": -1}]}}
    asked = {"messages": [{"role": "user", "content": "q"}]}
    rows = [
        {"request": asked | {"temperature": heat}, "response": {"prompt_token_ids": [1], "choices": [answer]}}
        for heat in (1, 2**63)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reading = read_files([str(tmp_path)])
    assert [one.tokens.temperature for one in reading.conversations] == [1]
    assert reading.reasons() == {"temperature: out of range": 1}
