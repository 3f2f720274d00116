"""A new user's first hour: its logs are of the kinds that the README names, and its lines are the README's."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from clawpipe.data.importers.read.mapping import read_mapping
from clawpipe.data.importers.read.read import read_stream
from clawpipe.data.importers.read.reading import Reading

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hour():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("first_hour")
    sys.path.remove(str(ROOT / "benchmarks"))


def test_each_row_of_the_readmes_table_has_its_logs(hour):
    [table] = re.findall(r"\| what is read \|.*?\n\|---.*?\n(.*?)\n\n", (ROOT / "README.md").read_text(), re.DOTALL)
    assert [row.split("|")[1].strip() for row in table.splitlines()] == [kind.row for kind in hour.KINDS.values()]


@pytest.mark.parametrize("name", ["sessions", "exports", "traces", "frameworks", "records", "own"])
def test_the_logs_tell_of_each_chat_in_the_form_of_the_kind(hour, tmp_path, name):
    kind, chats = hour.KINDS[name], hour.chats(5)
    kind.write(chats, tmp_path / kind.file)
    reading = Reading()
    stream = read_stream([str(tmp_path / kind.file)], reading=reading, mapping=read_mapping(kind.words[1::2]))
    found = {conversation.session: conversation for conversation in stream}
    assert reading.reasons() == {}
    assert found.keys() == {chat.name for chat in chats}
    assert set(reading.formats) == {kind.format}
    for chat in chats:
        asked, called, *answered = found[chat.name].messages
        [call] = called.tool_calls
        assert (asked.content, call.name, call.arguments) == (chat.asked, chat.tool, hour.json.dumps(chat.arguments))
        assert [message.content for message in answered] == ([] if name == "traces" else [chat.result, chat.answer])


def test_the_lines_are_the_readmes_with_the_logs_of_the_kind(hour):
    assert hour.lines_for(hour.KINDS["exports"], ["--model", "random"]) == [
        "clawpipe inspect conversations.json --limit 1",
        "clawpipe train conversations.json --model random",
        "clawpipe status",
    ]
    assert hour.lines_for(hour.KINDS["own"], [])[0].endswith("--limit 1 --map messages=ticket.talk --map session_id=ticket.number")


@pytest.mark.slow
@pytest.mark.long
def test_an_hour_with_a_form_of_ones_own_ends_in_a_verdict(hour, tmp_path, capsys):
    small = "--model random -o train.max_steps=1 -o runtime.workers=1 -o runtime.train_threads=1"
    assert hour.Hour(hour.KINDS["own"], tmp_path).spend(24, small.split()) == "HOLD"
    shown = capsys.readouterr().out
    assert "too few: the" in shown
    assert "clawpipe-agent 1>" in shown  # it said something
