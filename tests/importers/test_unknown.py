"""What is not read is called by its name, with the words that would read it."""

import gzip
import io
import json
import pickle
import sqlite3
import zipfile

import pytest

from clawpipe.data.importers.formats.table import FORMATS
from clawpipe.data.importers.read.hints import shape_of
from clawpipe.data.importers.read.mapping import read_mapping
from clawpipe.data.importers.read.read import read_stream
from clawpipe.data.importers.read.reading import SHAPES, Reading, Refusal
from clawpipe.data.importers.record import Conversation
from tests.importers.reading import read_files

GENERATION = {"type": "GENERATION", "traceId": "t", "input": "2+2?", "output": "4", "startTime": "2026"}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"ts": 1, "say": "text", "text": "q"}, ["keys: ts, say, text", "what Cline shows", "--format file.py:NAME"]),
        ({"run_type": "llm", "inputs": {}}, ["near to langsmith, which has outputs"]),
        ({"request_body": {}, "status": 200}, ["near to helicone, which has response_body"]),
        ({"mapping": {}, "title": "t"}, ["near to chatgpt, which has current_node"]),
        (
            {"data": {"turns": [{"speaker": "user", "text": "q"}]}},
            ["try --map messages=data.turns --map messages.role=speaker --map messages.content=text"],
        ),
        ({"samples": [{"chat": [{"role": "user", "content": "q"}]}], "eval": {}}, ["try --map each=samples --map messages=chat"]),
        ({"data": [GENERATION], "meta": {}}, ["try --map each=data, which holds records of langfuse"]),
        ({"data": [{"messages": [{"role": "user", "content": "q"}]}]}, ["try --map each=data, which holds records of chat"]),
        ({"problem": "2+2?", "final_answer": "4"}, ["try --map prompt=problem --map completion=final_answer"]),
        (
            {"dialogue": [{"speaker": "customer", "utterance": "hi"}, {"speaker": "bot", "utterance": "hello"}]},
            ["try --map messages=dialogue --map messages.role=speaker --map messages.content=utterance"],
        ),
        (
            {"event": {"payload": {"request": {"lines": [{"who": "me", "text": "hi"}]}}}},
            ["try --map messages=event.payload.request.lines --map messages.role=who --map messages.content=text"],
        ),
        (
            {"user_id": "u", "question_text": "2+2?", "model_answer_text": "4"},
            ["try --map prompt=question_text --map completion=model_answer_text"],
        ),
        ({}, ["no keys"]),
        ({f"key{number}": 1 for number in range(30)}, ["key7 and 22 more"]),
        ({"k" * 1000: 1}, [f"keys: {'k' * 40}...;"]),
    ],
)
def test_a_shape_names_keys_writer_and_words(record, words):
    assert all(word in shape_of(record, FORMATS.values()) for word in words)


def test_the_proposed_words_read_what_customers_and_bots_say(tmp_path):
    record = {"dialogue": [{"speaker": "customer", "utterance": "hi"}, {"speaker": "chatbot", "utterance": "hello"}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    words = shape_of(record).partition("try ")[2].split()
    [conversation] = read_stream([str(tmp_path)], mapping=read_mapping([word for word in words if word != "--map"]))
    assert isinstance(conversation, Conversation)
    assert [(message.role, message.content) for message in conversation.messages] == [("user", "hi"), ("assistant", "hello")]


def test_the_proposed_word_reads_a_page_of_a_web_api(tmp_path):
    page = {"data": [GENERATION, GENERATION | {"type": "SPAN"}], "meta": {"cursor": None}}
    (tmp_path / "page.json").write_text(json.dumps(page))
    found = list(read_stream([str(tmp_path)], mapping=read_mapping(["each=data"])))
    assert [type(one) for one in found] == [Conversation, Refusal]  # a span is no answer of a model


def test_a_warning_says_how_to_read_the_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"dialog": [{"role": "user", "content": "q"}]}\n' * 3 + '{"what": 1}\n')
    reading = read_files([str(tmp_path)])
    assert reading.reasons() == {"no known format": 4}
    first, second = reading.warnings()
    assert first.startswith("3 lines have no known format (keys: dialog; try --map messages=dialog;")
    assert "keys: what" in second


def test_forms_without_end_are_not_all_remembered():
    reading = Reading()
    for number in range(SHAPES + 100):
        reading.count_unknown(f"keys: {number}")
    assert (len(reading.unknown), len(list(reading.warnings()))) == (SHAPES, 3)


def zipped():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.jsonl", "{}\n" * 50)
    return packed.getvalue()


def database(tmp_path):
    with sqlite3.connect(tmp_path / "one.db") as made:
        made.execute("create table t (a)")
    return (tmp_path / "one.db").read_bytes()


def test_bytes_without_nul_are_no_lines_of_text(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(bytes(range(1, 256)) * 4)
    (tmp_path / "b.jsonl").write_bytes("Übergänge und \x1b[1mFarben\n".encode("latin-1") * 4)
    reading = read_files([str(tmp_path)])
    assert reading.reasons() == {"file cannot be read on: a binary file of an unknown kind": 1, "not UTF-8": 4}


def test_a_file_of_another_kind_is_one_refusal(tmp_path):
    kinds = {
        "a zip archive": zipped(),
        "an SQLite database": database(tmp_path),
        "Markdown": b"# My notes\n\n" + b"## what\n\n> said\n" * 50,
        "a zip archive with a password": b"PK\x03\x04\x14\x00\x09\x00" + bytes(40),
        "a document of an office program": b"PK\x03\x04\x14\x00\x00\x00" + bytes(20) + b"word/document.xml",
        "an encrypted or signed message of PGP": b"-----BEGIN PGP MESSAGE-----\n\nhQEMA\n",
        "a file that is encrypted with age": b"age-encryption.org/v1\n-> X25519 a\n",
        "a file that is encrypted with OpenSSL": b"Salted__12345678" + bytes(16),
        "UTF-16 text": "q\n".encode("utf-16"),
        "a program": b"\x7fELF\x02\x01",
        "a binary file of an unknown kind": b"\x01\x02\x00\x00abc",
        "a table of values between commas: convert it to Parquet or JSON Lines": b'prompt,"completion"\n2+2?,4\n',
        "a web page": b"<!DOCTYPE html>\n<html>\n</html>\n",
        "a Python pickle": pickle.dumps({"a": 1}, protocol=4),
        "a PDF document": b"%PDF-1.7\n...",
    }
    for name, data in kinds.items():
        (tmp_path / "a.jsonl").write_bytes(data)
        (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(data))
        for file in ("a.jsonl", "b.jsonl.gz"):
            [refused] = read_files([str(tmp_path / file)]).refused
            assert refused.reason.startswith(f"file cannot be read on: {name}")


def test_records_below_a_heading_are_read(tmp_path):
    chat = json.dumps({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})
    (tmp_path / "a.jsonl").write_text(f"# exported\n{chat}\n")
    reading = read_files([str(tmp_path)])
    assert (len(reading.conversations), reading.reasons()) == (1, {"not JSON": 1})


def test_what_agents_print_lacks_what_was_asked():
    printed = {
        "type": "assistant",
        "message": {"content": [{"type": "text", "text": "a"}]},
        "parent_tool_use_id": None,
        "session_id": "s",
    }
    shape = shape_of(printed, FORMATS.values())
    assert "its files in ~/.claude/projects are read" in shape
    assert "--map messages=" not in shape
