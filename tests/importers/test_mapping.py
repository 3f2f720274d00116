"""Records of any form are read by a mapping, or by a function of the user's own."""

import json

import pytest

from clawpipe.data.importers.read.mapping import TARGETS, read_mapping
from clawpipe.data.importers.read.read import read_stream
from clawpipe.data.importers.read.reading import Reading
from clawpipe.data.importers.record import Conversation, Preference
from clawpipe.data.ingest.intake.options import Options
from clawpipe.errors import ConfigError, NotFoundError

DIALOG = [{"speaker": "human", "text": "q", "at": 1}, {"speaker": "bot", "text": "a"}]


def read(folder, record, *words, format="auto"):
    (folder / "a.jsonl").write_text(json.dumps(record) + "\n")
    reading = Reading()
    found = list(read_stream([str(folder / "a.jsonl")], format, reading, mapping=read_mapping(words)))
    return reading, found


def test_mapped_fields_become_a_conversation_others_stay(tmp_path):
    record = {"data": {"turns": DIALOG, "lang": "en"}, "result": {"score": "0.5"}, "who": {"id": 7}, "note": "n"}
    words = ["messages=data.turns", "messages.role=speaker", "messages.content=text", "reward=result.score", "user=who.id"]
    _, [conversation] = read(tmp_path, record, *words)
    assert isinstance(conversation, Conversation)
    assert [(message.role, message.content) for message in conversation.messages] == [("user", "q"), ("assistant", "a")]
    assert [judgement.value for judgement in conversation.judgements] == [0.5]
    assert conversation.user == "7"
    assert conversation.extra == {"data": {"lang": "en"}, "note": "n", "messages": [{"message": 0, "at": 1}]}


def test_paths_enter_json_texts_and_list_elements(tmp_path):
    record = {
        "log": json.dumps({"calls": [{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}]})
    }
    _, [conversation] = read(tmp_path, record, "messages=log.calls.0.messages")
    assert conversation.prompt == "q"


def test_columns_of_other_names_are_a_preference(tmp_path):
    _, [pair] = read(tmp_path, {"question": "q", "better": "a", "worse": "b"}, "prompt=question", "chosen=better", "rejected=worse")
    assert isinstance(pair, Preference)


@pytest.mark.parametrize(
    ("record", "reason"),
    [({"data": {}}, "data.turns: missing"), ({"data": {"turns": DIALOG}, "result": "good"}, "reward: not a number")],
)
def test_where_a_path_leads_to_nothing_the_row_is_rejected(record, reason, tmp_path):
    reading, _ = read(tmp_path, record, "messages=data.turns", "messages.role=speaker", "messages.content=text", "reward=result")
    assert reading.reasons() == {reason: 1}


@pytest.mark.parametrize("word", ["messages", "messages=", "=a", "colour=a", "messages=a..b"])
def test_a_word_that_is_no_mapping_is_an_error_with_the_targets(word):
    with pytest.raises(ConfigError) as error:
        Options(map=(word,))
    assert TARGETS[0] in error.value.fix


def test_another_mapping_begins_another_log():
    names = {Options().name, Options(map=("reward=a",)).name, Options(map=("reward=b",)).name}
    assert len(names) == 3


OWN = """
def read(record):
    if record["kind"] != "dialog":
        return None
    return {"messages": [{"role": "user", "content": record["q"]}, {"role": "assistant", "content": record["a"]}],
            "reward": record["stars"] / 5}

NUMBER = 7
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path / 'own.py'}:read"


def test_a_function_of_the_user_is_a_format(own, tmp_path):
    reading, [conversation] = read(tmp_path, {"kind": "dialog", "q": "q", "a": "a", "stars": 4}, format=own)
    assert (conversation.prompt, conversation.judgements[0].value) == ("q", 0.8)
    assert dict(reading.formats) == {"read": 1}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"kind": "other"}, "not of the importer's format"),
        ({"kind": "dialog", "q": "q", "a": "a", "stars": "x"}, "the importer failed: TypeError: unsupported operand"),
        ({"kind": "dialog", "q": 1, "a": "a", "stars": 1}, "messages[].content"),
    ],
)
def test_what_the_function_cannot_read_is_rejected(record, reason, own, tmp_path):
    reading, _ = read(tmp_path, record, format=own)
    [told] = reading.reasons()
    assert told.startswith(reason)


@pytest.mark.parametrize(
    ("name", "error"), [("nowhere.py:read", NotFoundError), ("{own}x", NotFoundError), ("no_such_module:read", NotFoundError)]
)
def test_a_reference_that_leads_nowhere_is_an_error(name, error, own, tmp_path):
    with pytest.raises(error, match=r"path/to/file\.py:NAME"):
        read(tmp_path, {}, format=name.format(own=own))


def test_what_is_no_function_is_an_error(own, tmp_path):
    with pytest.raises(ConfigError, match="neither a function nor a format"):
        read(tmp_path, {}, format=own.replace(":read", ":NUMBER"))


def test_an_importer_that_was_edited_begins_another_log(own, tmp_path):
    before = Options(format=own).name
    (tmp_path / "own.py").write_text(OWN.replace("/ 5", "/ 10"))
    assert Options(format=own).name != before


CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
NESTED = {"eval": {"model": "m"}, "data": {"samples": [{"chat": CHAT, "won": 1}, {"chat": None}, {"chat": CHAT, "won": 0}]}}


def test_a_list_of_conversations_inside_one_record(tmp_path):
    words = ["each=data.samples", "messages=chat", "reward=won", "model=around.eval.model"]
    reading, found = read(tmp_path, NESTED, *words)
    assert [type(one).__name__ for one in found] == ["Conversation", "Refusal", "Conversation"]
    assert [(one.model, one.judgements[0].value) for one in (found[0], found[2])] == [("m", 1.0), ("m", 0.0)]
    assert (reading.lines, reading.accepted, reading.reasons()) == (3, 2, {"chat: missing": 1})
    assert found[1].offset == 1  # a place of its own


@pytest.mark.parametrize("samples", [None, [], "no", [1]])
def test_where_there_is_no_list_the_row_is_rejected(samples, tmp_path):
    reading, _ = read(tmp_path, {"samples": samples}, "each=samples", "messages=chat")
    assert reading.reasons() == {"samples: no list of objects": 1}


def test_a_row_is_rejected_with_all_reasons(tmp_path):
    reading, _ = read(tmp_path, {"score": "good", "b": 1}, "prompt=q", "completion=a", "reward=score")
    assert reading.reasons() == {"q: missing; a: missing; reward: not a number": 1}
    chat = {"messages": [{"role": "robot", "content": "x"}, {"role": "user", "content": 4}], "tools": 5}
    (tmp_path / "a.jsonl").write_text(json.dumps(chat) + "\n")
    reading = Reading()
    list(read_stream([str(tmp_path / "a.jsonl")], "auto", reading))
    [reason] = reading.reasons()
    assert reason.split("; ") == [
        "tools: not list or str",
        "messages[].role: not system, user, assistant or tool",
        "messages[].content: not str or list or dict",
    ]
