"""Histories: what clients leave out of them makes no other history, and nothing is taught again."""

import json

import pytest

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.data.capture.chains import chains_of
from clawpipe.data.capture.sessions import sessions_of
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.data.wire.histories import history_digest
from tests.capture.test_sessions import turn

USER = {"role": "user", "content": "q1"}
CALL = {"id": "c", "type": "function", "function": {"name": "stock", "arguments": '{"a": 1, "b": 2}'}}
CALLED = {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "57"}
SAID = [
    {"role": "assistant", "content": "a1"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\na1"},
    {"role": "assistant", "content": "<think>other</think>a1"},
    {"role": "assistant", "content": "hm\n</think>\na1"},
    {"role": "assistant", "content": "a1", "reasoning_content": "hm"},
    {"role": "assistant", "content": "a1", "reasoning": "hm"},
    {"role": "assistant", "content": " a1\n"},
    {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "1"}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a1"}]},
]
OTHER = [
    {"role": "assistant", "content": "a2"},
    {"role": "assistant", "content": "a 1"},
    {"role": "assistant", "content": "The answer: a1"},
    {"role": "assistant", "content": "a1", "tool_calls": [CALL]},
]


def of(*messages):
    digest = b""
    for message in messages:
        digest = history_digest(digest, message.role, message.content, message.tool_calls)
    return digest


def call(arguments, call_id="c"):
    return Message("assistant", "", (ToolCall(call_id, "stock", arguments),))


ASKED = Message("user", "q")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ([ASKED, Message("assistant", "<think>\nhm\n</think>\na")], [ASKED, Message("assistant", "a")], True),
        ([Message("system", "It is noon."), ASKED], [Message("system", "It is one."), ASKED], True),
        ([Message("system", "Be brief."), ASKED], [ASKED], True),
        ([call('{"a": 1, "b": 2.0}')], [call('{"b":2,"a":1}', "other")], True),
        ([Message("tool", "57\n", tool_call_id="x")], [Message("tool", "57", tool_call_id="y", name="stock")], True),
        ([ASKED, Message("user", "q2")], [Message("user", "q2"), ASKED], False),
        ([ASKED], [ASKED, ASKED], False),
        ([Message("user", "<think>a</think>q")], [ASKED], False),  # the words of others are not cut
        ([Message("tool", "q")], [ASKED], False),
        ([Message("user", "ab"), Message("user", "c")], [Message("user", "a"), Message("user", "bc")], False),
        ([call('{"a": 1}')], [call('{"a": "1"}')], False),
        ([call('{"a": 1}')], [Message("assistant", "")], False),
        ([Message("user", "\ud800 ")], [Message("user", "\ud800")], True),
        ([Message("user", "\ud800")], [Message("user", "\ud801")], False),
    ],
)
def test_which_histories_are_equal(one, other, equal):
    assert (of(*one) == of(*other)) is equal


def stored(home, path, *messages):
    """Return how many side turns an export of one session has."""
    path.write_text(json.dumps({"session_id": "g", "user": "u", "messages": messages}) + "\n")
    return ingest(home, [str(path)], Options()).counts["side_turns"]


@pytest.mark.parametrize("before", SAID)
@pytest.mark.parametrize("after", [SAID[0], SAID[1], SAID[4], SAID[8]])
def test_a_grown_export_teaches_its_old_turns_once(before, after, home, tmp_path):
    more = [{"role": "user", "content": "q2"}, {"role": "assistant", "content": "a2"}]
    assert stored(home, tmp_path / "1.jsonl", USER, before) == 0
    assert stored(home, tmp_path / "2.jsonl", USER, after, *more) == 1
    assert stored(home, tmp_path / "3.jsonl", {"role": "system", "content": "It is noon."}, USER, SAID[0], *more, USER, before) == 2


def test_an_export_that_lost_its_thoughts_teaches_nothing(home, tmp_path):
    assert stored(home, tmp_path / "1.jsonl", USER, SAID[1]) == 0
    assert stored(home, tmp_path / "2.jsonl", USER, SAID[0]) == 1


@pytest.mark.parametrize("after", OTHER)
def test_a_changed_history_is_another_conversation(after, home, tmp_path):
    assert stored(home, tmp_path / "1.jsonl", USER, SAID[1]) == 0
    assert stored(home, tmp_path / "2.jsonl", USER, after, USER, SAID[0]) == 0


def test_a_session_that_went_another_way_teaches_what_is_new(home, tmp_path):
    ask, tell = {"role": "user", "content": "q2"}, {"role": "assistant", "content": "a2"}
    assert stored(home, tmp_path / "1.jsonl", USER, SAID[1], ask, tell) == 0
    assert stored(home, tmp_path / "2.jsonl", USER, SAID[0], ask, tell | {"content": "b2"}) == 1
    assert stored(home, tmp_path / "3.jsonl", USER, SAID[0], USER, tell) == 1


def test_calls_and_results_belong_to_the_history(home, tmp_path):
    respelled = CALL | {"id": "x", "function": {"name": "stock", "arguments": {"b": 2, "a": 1.0}}}
    again = CALLED | {"content": "<think>hm</think>\nLet me look.", "tool_calls": [respelled]}
    assert stored(home, tmp_path / "1.jsonl", USER, CALLED, RESULT, SAID[0]) == 0
    assert stored(home, tmp_path / "2.jsonl", USER, again, RESULT | {"tool_call_id": "x"}, SAID[1], USER, SAID[0]) == 2
    assert stored(home, tmp_path / "3.jsonl", USER, CALLED, RESULT | {"content": "58"}, SAID[1], USER, SAID[0]) == 1


@pytest.mark.parametrize("before", SAID[:-1])
@pytest.mark.parametrize("after", SAID[:-1])
def test_a_captured_session_goes_on(before, after):
    first, second = turn(1, [USER], before), turn(2, [USER, after, USER], "a2")
    [session] = sessions_of([first, second]).values()
    assert [one.relation for one in session.turns] == ["starts", "continues"]


@pytest.mark.parametrize("after", OTHER)
def test_a_captured_session_with_another_history_branches(after):
    [session] = sessions_of([turn(1, [USER], SAID[1]), turn(2, [USER, after, USER], "a2")]).values()
    assert [one.relation for one in session.turns] == ["starts", "branches"]


@pytest.mark.parametrize(("after", "rows"), [(SAID[0], 2), (SAID[1], 1), (SAID[4], 1), (SAID[2], 2)])
def test_a_turn_is_taught_with_the_thought_that_it_had(after, rows):
    """In the row of a history without the thought, the turn is context; it has a row of its own."""
    [session] = sessions_of([turn(1, [USER], SAID[1]), turn(2, [USER, after, USER], "a2")]).values()
    assert len(list(chains_of(session))) == rows
