"""Batch rows and interactive samples, as their documentation describes them."""

import json

import pytest

from clawpipe.importers.hermes import call_failed, is_hermes, read_hermes, write_hermes
from clawpipe.importers.strict import RefusedError

ANSWER = {"tool_call_id": "c1", "name": "terminal", "content": {"output": "4", "exit_code": 1, "error": None}}
ROW = {
    "prompt_index": 7,
    "conversations": [
        {"from": "system", "value": "Tools: ..."},
        {"from": "human", "value": "How many .py files are in src?"},
        {
            "from": "gpt",
            "value": "<think>\nlist them\n</think>\n"
            '<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call>\n'
            "<tool_call>\n{broken}\n</tool_call>",
        },
        {
            "from": "tool",
            "value": f"<tool_response>\n{json.dumps(ANSWER)}\n</tool_response>\n<tool_response>\n"
            '{"tool_call_id": "c2", "name": "unknown", "content": "Error: no such tool"}\n</tool_response>',
        },
        {"from": "gpt", "value": "<think>\n</think>\nThere are 4."},
    ],
    "metadata": {"batch_num": 0, "model": "m", "difficulty": "easy"},
    "completed": True,
    "partial": False,
    "api_calls": 2,
    "tool_stats": {"terminal": {"count": 1, "success": 1, "failure": 0}},
    "tool_error_counts": {"terminal": 0},
}


def test_calls_results_and_reasoning_come_through():
    conversation = read_hermes(ROW)
    assert is_hermes(ROW)
    roles = [message.role for message in conversation.messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant"]
    spoken, first, second = conversation.messages[2:5]
    assert spoken.content == "<think>\nlist them\n</think>"
    assert [(call.name, call.malformed) for call in spoken.tool_calls] == [("terminal", False), ("", True)]
    assert spoken.tool_calls[1].arguments == "{broken}"  # evidence, not garbage
    assert json.loads(first.content) == ANSWER["content"]
    assert (first.tool_call_id, first.name) == (spoken.tool_calls[0].id, "terminal")
    assert second.tool_call_id == spoken.tool_calls[1].id
    assert conversation.kinds == ("main", "main")


def test_what_the_row_says_beside_the_conversation_is_kept():
    conversation = read_hermes(ROW)
    [outcome] = conversation.judgements
    assert (outcome.value, outcome.success, outcome.evidence["failed_tool_calls"]) == (1.0, True, 1)
    assert conversation.model == "m"
    assert conversation.extra["metadata"]["difficulty"] == "easy"
    assert conversation.extra["prompt_index"] == 7
    assert conversation.extra["tool_stats"] == ROW["tool_stats"]


def test_a_partial_row_is_no_success_and_one_without_a_flag_has_no_outcome():
    assert read_hermes(ROW | {"partial": True}).judgements[0].success is False
    assert read_hermes({"conversations": ROW["conversations"], "timestamp": "t", "model": "x"}).judgements == ()


@pytest.mark.parametrize(
    ("content", "failed"),
    [
        ('{"error": null, "exit_code": 2}', False),
        ('{"error": "no"}', True),
        ('{"content": {"error": "no"}}', True),
        ('{"success": false}', True),
        ("", True),
        ("ERROR: no", True),
        ("an error: no", False),
        ("[1]", False),
    ],
)
def test_a_tool_call_failed_by_the_runners_own_rule(content, failed):
    assert call_failed(content) is failed


def test_what_is_written_is_read_back():
    messages = read_hermes(ROW).messages
    again = read_hermes({"conversations": write_hermes(messages)}).messages
    assert [(message.role, message.content) for message in again] == [(message.role, message.content) for message in messages]
    assert [[(call.name, call.arguments, call.malformed) for call in message.tool_calls] for message in again] == [
        [(call.name, call.arguments, call.malformed) for call in message.tool_calls] for message in messages
    ]


@pytest.mark.parametrize(
    ("conversations", "reason"),
    [
        ([], "no assistant message"),
        ([{"from": "gpt", "value": "hello"}], "no user message"),
        ([{"from": "robot", "value": "x"}], "from: not system"),
        ([{"from": "human", "value": 3}], "value: not str"),
        (["text"], "not an object"),
    ],
)
def test_what_is_no_conversation_is_refused(conversations, reason):
    with pytest.raises(RefusedError, match=reason):
        read_hermes({"conversations": conversations})
