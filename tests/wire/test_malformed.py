"""Malformed calls of what others recorded: their turns are context, counted under their reason, and a server takes them."""

import json

import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.open import open_store
from clawpipe.data.capture.records import line_of
from clawpipe.data.importers.untaught import MALFORMED
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.model.policy.text import render_row, renderers
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.start.proposing.report import ingest_report
from tests.capture.test_sessions import turn

GOOD = ["", " ", None, "null", "{}", json.dumps("{}")]
BAD = ['{"a": 1}{"b": 2}', '{"a": ', "[]", "now please"]
TOOLS = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
ASKED, RESULT = {"role": "user", "content": "What time is it?"}, {"role": "tool", "tool_call_id": "c", "content": "noon"}
ANSWER = {"role": "assistant", "content": "Noon."}


def called(arguments):
    function = {"name": "now", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def stored(home, path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = ingest(home, [str(path)], Options())
    return ingest_report(home, done), done.datasets


def rows_of(home, datasets, name="trajectories"):
    return read_dataset(open_store(home), datasets[name]).to_pylist()


@pytest.mark.parametrize("arguments", GOOD)
def test_a_call_without_arguments_is_taught_with_its_name(arguments, home, tmp_path):
    report, datasets = stored(home, tmp_path / "a.jsonl", {"messages": [ASKED, called(arguments), RESULT, ANSWER], "tools": TOOLS})
    [row] = rows_of(home, datasets)
    assert (row["kinds"], report["silent"]) == (["main", "main"], {})
    for form in ("hermes", "pythonic", "llama3", "mistral", "qwen3-coder", "harmony"):
        assert "now" in taught(row, form)


@pytest.mark.parametrize("arguments", BAD)
def test_a_malformed_one_is_context_and_counted(arguments, home, tmp_path):
    report, datasets = stored(home, tmp_path / "a.jsonl", {"messages": [ASKED, called(arguments), RESULT, ANSWER], "tools": TOOLS})
    [row] = rows_of(home, datasets)
    assert (row["kinds"], report["silent"], report["side_turns"]) == (["side", "main"], {MALFORMED: 1}, 1)
    assert any(MALFORMED in warning for warning in report["warnings"])
    assert row["messages"][1]["tool_calls"][0] == {"id": "c", "name": "now", "arguments": arguments, "malformed": True}
    for form in ("hermes", "pythonic", "llama3", "mistral", "qwen3-coder", "harmony"):
        assert "now" not in taught(row, form)
        assert "Noon." in taught(row, form)


def taught(row, form):
    tokenizer = byte_tokenizer()
    ((ids, mask), _) = render_row(row, renderers(tokenizer, form, ()), ())
    return tokenizer.backend_tokenizer.decode([one for one, kept in zip(ids, mask, strict=True) if kept])


@pytest.mark.parametrize(("arguments", "kinds"), [("", ["main"]), ('{"a": ', ["side"])])
def test_so_is_one_in_a_captured_session(arguments, kinds, home, tmp_path):
    file = tmp_path / "segment.jsonl"
    file.write_bytes(line_of(turn(1, [ASKED], called(arguments), done=True)))
    done = ingest(home, [str(file)], Options())
    [row] = rows_of(home, done.datasets)
    assert (row["kinds"], ingest_report(home, done)["silent"].get(MALFORMED, 0)) == (kinds, kinds.count("side"))


def test_no_malformed_call_is_preferred(home, tmp_path):
    pair = {"prompt": [ASKED], "chosen": [called("")], "rejected": [called("{")]}
    turned = {"prompt": [ASKED], "chosen": [called("{")], "rejected": [called("")]}
    report, datasets = stored(home, tmp_path / "pairs.jsonl", pair, turned)
    assert (report["accepted"], report["quarantined"]) == (1, {"chosen: a malformed call": 1})
    [row] = rows_of(home, datasets, "preference_pairs")
    assert Message.from_dict(row["rejected"][0]).tool_calls[0].malformed
