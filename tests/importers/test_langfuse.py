"""Langfuse's traces and observations, whose shapes are those of its export, and parts of Goose and of MCP."""

import json

import pytest

from clawpipe.data.importers.read.mapping import read_mapping
from clawpipe.data.importers.read.read import read_stream
from clawpipe.data.importers.read.reading import Reading
from tests.importers.reading import read_files

ASKED, FOUR = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
OBSERVATION = {
    "id": "o1",
    "type": "GENERATION",
    "traceId": "t1",
    "sessionId": "s1",
    "userId": "ann",
    "model": "m",
    "input": [ASKED],
    "output": FOUR,
    "usage": {"input": 3},
}


def read(tmp_path, *records):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return read_files([str(tmp_path / "a.jsonl")])


def said(conversation):
    return [(message.role, message.content) for message in conversation.messages]


@pytest.mark.parametrize(
    "sides",
    [
        {},
        {"input": {"messages": [ASKED], "temperature": 0.5}},
        {"input": json.dumps([ASKED]), "output": json.dumps(FOUR)},
        {"input": "2+2?", "output": "4"},
        {"output": {"choices": [{"message": FOUR, "finish_reason": "stop"}]}},
        {"output": [FOUR]},
    ],
)
def test_an_observation_is_a_request_and_its_answer(tmp_path, sides):
    reading = read(tmp_path, OBSERVATION | sides)
    [conversation] = reading.conversations
    assert (said(conversation), dict(reading.formats)) == ([("user", "2+2?"), ("assistant", "4")], {"langfuse": 1})
    assert (conversation.session, conversation.user, conversation.model) == ("s1", "ann", "m")
    assert conversation.extra["usage"] == {"input": 3}


def test_a_trace_is_read_by_its_own_sides(tmp_path):
    trace = {"id": "t", "timestamp": "2026", "sessionId": "s1", "input": "q", "output": "a", "observations": [OBSERVATION]}
    [conversation] = read(tmp_path, trace).conversations
    assert (said(conversation), conversation.session) == ([("user", "q"), ("assistant", "a")], "s1")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"type": "SPAN"}, "a Langfuse observation of the kind SPAN, which is no answer of a model"),
        ({"output": None}, "a Langfuse record without messages in its input and output"),
        ({"input": {"city": "Oslo"}}, "a Langfuse record without messages in its input and output"),
        ({"output": {"degrees": 3}}, "a Langfuse record without messages in its input and output"),
        ({"level": "ERROR", "output": "Error: 500 timed out"}, "a Langfuse record of a call that failed"),
        ({"output": "redacted-by-litellm"}, "a Langfuse record whose texts were blanked"),
    ],
)
def test_what_says_nothing_is_rejected_by_its_own_name(tmp_path, fields, reason):
    assert read(tmp_path, OBSERVATION | fields).reasons() == {reason: 1}


def test_other_records_with_a_session_are_not_claude_code(tmp_path):
    event = {"type": "click", "sessionId": "s", "input": "button"}
    assert read(tmp_path, event).reasons() == {"no known format": 1}


GOOSE = [
    {"working_dir": "/work", "description": "files", "message_count": 4},
    {"role": "user", "created": 1, "content": [{"type": "text", "text": "list files"}]},
]


@pytest.mark.parametrize(
    ("asked", "heard", "answer", "failed"),
    [
        (
            {"type": "toolRequest", "toolCall": {"status": "success", "value": {"name": "shell", "arguments": {"command": "ls"}}}},
            {"type": "toolResponse", "toolResult": {"status": "success", "value": [{"type": "text", "text": "a.txt"}]}},
            "a.txt",
            0,
        ),
        (
            {"type": "toolRequest", "toolCall": {"Ok": {"name": "shell", "arguments": {"command": "ls"}}}},
            {"type": "toolResponse", "toolResult": {"Ok": {"content": [{"type": "text", "text": "a.txt"}], "isError": False}}},
            "a.txt",
            0,
        ),
        (
            {"type": "toolRequest", "toolCall": {"name": "shell", "arguments": {"command": "ls"}}},
            {"type": "toolResponse", "toolResult": {"status": "error", "error": "no such command"}},
            "no such command",
            1,
        ),
        (
            {"method": "tools/call", "params": {"name": "shell", "arguments": {"command": "ls"}}},
            {"type": "tool_response", "tool_result": {"content": [{"type": "text", "text": "gone"}], "isError": True}},
            "gone",
            1,
        ),
    ],
)
def test_requests_and_responses_of_mcp_are_calls(tmp_path, asked, heard, answer, failed):
    lines = [
        {"role": "assistant", "content": [asked | {"id": "t1"}]},
        {"role": "user", "content": [heard | {"id": "t1"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "There is a.txt."}]},
    ]
    reading = read(tmp_path, *GOOSE, *lines)
    [conversation] = reading.conversations
    [call] = conversation.messages[1].tool_calls
    assert (call.id, call.name, call.arguments, call.malformed) == ("t1", "shell", '{"command": "ls"}', False)
    assert (conversation.messages[2].role, conversation.messages[2].tool_call_id) == ("tool", "t1")
    assert (conversation.messages[2].content, conversation.tool_errors, conversation.kinds) == (answer, failed, ("main", "main"))
    assert (reading.reasons(), conversation.extra["working_dir"]) == ({}, "/work")


def test_a_request_that_goose_could_not_read_is_a_side_turn(tmp_path):
    part = {"type": "toolRequest", "id": "t1", "toolCall": {"status": "error", "error": "no JSON"}}
    [conversation] = read(tmp_path, *GOOSE, {"role": "assistant", "content": [part]}).conversations
    assert conversation.kinds == ("side",)


def test_a_trace_without_messages_is_read_by_its_generations(tmp_path):
    trace = {"id": "t", "timestamp": "2026", "sessionId": "s9", "input": {"city": "Oslo"}, "output": {"degrees": 3}}
    other = {name: value for name, value in OBSERVATION.items() if name != "sessionId"}
    [conversation] = read(tmp_path, trace | {"observations": [{"type": "SPAN"}, other]}).conversations
    assert (said(conversation), conversation.session) == ([("user", "2+2?"), ("assistant", "4")], "s9")


def test_a_failed_generation_leaves_the_others_of_its_trace(tmp_path):
    trace = {"id": "t", "timestamp": "2026", "sessionId": "s9", "input": {"city": "Oslo"}, "output": {"degrees": 3}}
    failed = OBSERVATION | {"id": "o0", "level": "ERROR", "output": "Error: 500 timed out"}
    [conversation] = read(tmp_path, trace | {"observations": [failed, OBSERVATION]}).conversations
    assert said(conversation) == [("user", "2+2?"), ("assistant", "4")]
    assert [(one["id"], one["refused"]) for one in conversation.extra["unread"]] == [
        ("o0", "a Langfuse record of a call that failed")
    ]


def test_a_trace_whose_generations_all_failed_is_rejected(tmp_path):
    trace = {
        "id": "t",
        "timestamp": "2026",
        "input": "q",
        "output": "Error: 500",
        "observations": [OBSERVATION | {"level": "ERROR"}],
    }
    assert read(tmp_path, trace).reasons() == {"a Langfuse record of a call that failed": 1}


def test_exports_to_a_storage_are_observations(tmp_path):
    """They spell names in snake case, and messages as texts."""
    observation = {"id": "o", "type": "GENERATION", "trace_id": "t", "parent_observation_id": "", "provided_model_name": "m"}
    sides = {"input": json.dumps([ASKED]), "output": json.dumps(FOUR)}
    [conversation] = read(tmp_path, observation | sides).conversations
    assert (said(conversation), conversation.model) == ([("user", "2+2?"), ("assistant", "4")], "m")
    trace = {"id": "t", "timestamp": "2026", "user_id": "ann", "session_id": "s1"} | sides
    [conversation] = read(tmp_path, trace).conversations
    assert (said(conversation), conversation.user) == ([("user", "2+2?"), ("assistant", "4")], "ann")
    span = observation | {"type": "SPAN", "input": '{"city": "Oslo"}', "output": "3"}
    assert read(tmp_path, span).reasons() == {"a Langfuse observation of the kind SPAN, which is no answer of a model": 1}


FEEDBACK = {"name": "user-feedback", "value": 0, "dataType": "BOOLEAN"}
QUALITY, TONE = {"name": "quality", "value": 0.5}, {"name": "tone", "value": 1}


@pytest.mark.parametrize(
    ("scores", "judgements"),
    [
        ([QUALITY, {"name": "tone", "value": None}], [(0.5, "custom")]),
        ([FEEDBACK, QUALITY, TONE], [(0.0, "user")]),
        ([{"name": "user_feedback", "value": 0.25}, QUALITY], [(0.25, "custom")]),
        ([{"name": "User thumbs", "value": None, "stringValue": "positive"}, QUALITY, TONE], [(1.0, "user")]),
        ([FEEDBACK, {"name": "overall quality", "value": 0.75}, TONE], [(0.0, "user"), (0.75, "custom")]),
        ([QUALITY, TONE], []),
    ],
)
def test_scores_that_say_whose_they_are_judge_a_trace(tmp_path, scores, judgements):
    reading = read(tmp_path, OBSERVATION | {"scores": scores})
    [conversation] = reading.conversations
    assert [(score.value, score.origin) for score in conversation.judgements] == judgements
    assert list(reading.outcomes) == ([] if judgements else ["scores.quality.value", "scores.tone.value"])


def test_one_of_several_scores_is_mapped_by_its_name(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(OBSERVATION | {"scores": [TONE, QUALITY]}))
    reading = Reading()
    [conversation] = read_stream(
        [str(tmp_path / "a.jsonl")], reading=reading, mapping=read_mapping(["reward=scores.quality.value"])
    )
    assert [(score.value, score.origin) for score in conversation.judgements] == [(0.5, "custom")]
    assert (conversation.extra["export"]["scores"], reading.outcomes) == ([TONE, QUALITY], {})


def test_an_agent_in_a_trace_repeats_its_generations(tmp_path):
    trace = {"id": "t", "timestamp": "2026", "input": {"city": "Oslo"}, "output": {"degrees": 3}}
    agent = OBSERVATION | {"type": "AGENT", "output": "So 4."}
    [conversation] = read(tmp_path, trace | {"observations": [agent, OBSERVATION]}).conversations
    assert said(conversation)[-1] == ("assistant", "4")
