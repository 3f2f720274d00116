"""Batch rows and interactive samples, as their documentation describes them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.formats.hermes import is_hermes, is_session, read_hermes, read_session, write_hermes
from clawpipe.data.importers.formats.sharegpt import read_dialogue
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.wire.arguments import tool_call
from clawpipe.data.wire.failures import call_failed
from tests.importers.reading import read_files

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


def read_turns(conversations):
    return read_dialogue(conversations, "conversations").messages


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


def test_the_row_counts_its_tool_calls_and_says_how_it_ended():
    conversation = read_hermes(ROW)
    assert (conversation.status, conversation.tool_calls, conversation.tool_errors) == ("completed", 1, 0)
    uncounted = {name: value for name, value in ROW.items() if not name.startswith("tool_")}
    counted = read_hermes(uncounted)  # two calls, of which the second was answered with an error
    assert (counted.tool_calls, counted.tool_errors) == (2, 1)
    assert read_hermes(ROW | {"partial": True}).status == "partial"
    assert read_hermes(ROW | {"completed": False}).status == "partial"
    assert read_hermes({"conversations": ROW["conversations"]}).status is None


def test_the_tools_on_offer_are_those_of_the_system_message():
    tools = [{"name": "terminal", "parameters": {"type": "object", "required": ["command"]}}]
    system = {"from": "system", "value": f"You may call:\n<tools>\n{json.dumps(tools)}\n</tools>\nfor example <tools>"}
    conversation = read_hermes(ROW | {"conversations": [system, *ROW["conversations"][1:]]})
    assert json.loads(conversation.tools) == tools
    assert read_hermes(ROW).tools is None


SESSION = {
    "id": "20260101_ab",
    "source": "telegram",
    "user_id": "ann",
    "model": "m",
    "system_prompt": "Be brief.",
    "started_at": 1.5,
    "title": None,
    "tool_call_count": 1,
    "messages": [
        {"id": 1, "role": "user", "content": "q", "timestamp": 1.6},
        {
            "id": 2,
            "role": "assistant",
            "content": "",
            "reasoning": "look",
            "tool_calls": json.dumps([{"id": "c", "function": {"name": "f", "arguments": "{}"}}]),
        },
        {"id": 3, "role": "tool", "content": '{"success": false}', "tool_call_id": "c", "tool_name": "f"},
        {"id": 4, "role": "assistant", "content": "a"},
    ],
}


def test_an_exported_session_comes_through():
    conversation = read_session(SESSION)
    assert is_session(SESSION)
    assert [message.role for message in conversation.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert conversation.messages[2].content == "<think>\nlook\n</think>\n"
    assert conversation.messages[3].name == conversation.messages[2].tool_calls[0].name == "f"
    assert (conversation.session, conversation.user, conversation.model) == ("20260101_ab", "ann", "m")
    assert (conversation.tool_calls, conversation.tool_errors) == (1, 1)
    assert conversation.extra["source"] == "telegram"
    assert conversation.extra["messages"][0] == {"message": 1, "id": 1, "timestamp": 1.6}


def test_training_rows_with_a_source_are_not_sessions():
    assert not is_session({"id": "a-1", "source": "alpaca", "messages": SESSION["messages"]})


@pytest.mark.parametrize("arguments", ['{"n": NaN}', '{"n": -Infinity}'])
def test_what_only_python_takes_for_json_is_malformed(arguments):
    assert tool_call("f", arguments, "c").malformed
    said = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
    [_, spoken] = read_turns([{"from": "human", "value": "q"}, {"from": "gpt", "value": said}])
    assert [call.malformed for call in spoken.tool_calls] == [True]


def test_cron_sessions_are_side_and_segments_are_not_repeated():
    row = SESSION | {"source": "cron", "segments": [SESSION], "lineage_session_ids": ["a", "b"]}
    conversation = read_session(row)
    assert conversation.kinds == ("side", "side")
    assert "segments" not in conversation.extra
    assert conversation.extra["lineage_session_ids"] == ["a", "b"]


WORDS = st.text(st.characters(exclude_characters="<>", exclude_categories=["Cs"]), min_size=1, max_size=9)
NAMES = WORDS.filter(str.isprintable)


CALLS = st.lists(st.tuples(NAMES, st.dictionaries(WORDS, st.integers())), max_size=3)


def told(messages):
    calls = [[(call.name, call.arguments) for call in message.tool_calls] for message in messages]
    return [(message.role, message.content, message.name, made) for message, made in zip(messages, calls, strict=True)]


@given(st.lists(st.tuples(WORDS, CALLS), min_size=1, max_size=4))
def test_any_calls_survive_a_round_trip(turns):
    messages = [Message("user", "q")]
    for number, (text, calls) in enumerate(turns):
        made = tuple(tool_call(name, arguments, f"call_{number}_{place}") for place, (name, arguments) in enumerate(calls))
        messages.append(Message("assistant", text.strip(), made))
        messages += [Message("tool", f"answer {place}", tool_call_id=call.id, name=call.name) for place, call in enumerate(made)]
        messages.append(Message("user", "go on"))
    assert told(read_turns(write_hermes(messages))) == told(messages)


def test_partial_rows_fail_and_rows_without_flag_have_no_outcome():
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


def test_tags_that_a_call_or_an_answer_quotes_are_text():
    command = {"command": "grep '</tool_call>' docs; echo '<tool_response>'"}
    output = {"output": "a: </tool_response> <tool_response> and the rest", "error": None}
    said = f"<think>\na <tool_call> is due\n</think>\n<tool_call>\n{json.dumps({'name': 'sh', 'arguments': command})}\n</tool_call>"
    heard = f"<tool_response>\n{json.dumps({'tool_call_id': 'c', 'name': 'sh', 'content': output})}\n</tool_response>"
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": said}, {"from": "tool", "value": f"{heard}\n{heard}"}]
    _, spoken, first, second = read_turns(turns)
    assert spoken.content == "<think>\na <tool_call> is due\n</think>"
    assert [(call.name, json.loads(call.arguments), call.malformed) for call in spoken.tool_calls] == [("sh", command, False)]
    assert json.loads(first.content) == json.loads(second.content) == output


def test_a_call_that_was_only_thought_of_is_none():
    said = '<think>\nI could <tool_call>\n{"name": "sh", "arguments": {}}\n</tool_call>\n</think>\nNo.'
    [_, spoken] = read_turns([{"from": "human", "value": "q"}, {"from": "gpt", "value": said}])
    assert (spoken.content, spoken.tool_calls) == (said, ())


def test_what_stands_beside_the_answers_of_tools_is_kept():
    heard = "note\n<tool_response>\n{}\n</tool_response>"
    *_, answer = read_turns([{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}, {"from": "tool", "value": heard}])
    assert answer.content == heard


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


@pytest.mark.parametrize(
    ("said", "text", "calls"),
    [
        ('Now.\n<tool_call>\n{"name": "f", "argum', "Now.", [('{"name": "f", "argum', True)]),
        ('<tool_call>\n{"name": "f"}\n</tool_call>\n<tool_call>{"na', "", [("{}", False), ('{"na', True)]),
        ("The tag <tool_call> begins a call", "The tag <tool_call> begins a call", []),
        ("<tool_call>", "<tool_call>", []),
    ],
)
def test_a_call_that_breaks_off_is_malformed(said, text, calls):
    spoken = read_hermes({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": said}]}).messages[1]
    assert spoken.content == text
    assert [(call.arguments, call.malformed) for call in spoken.tool_calls] == calls


PLAIN = {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]}


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (PLAIN, "sharegpt"),
        (PLAIN | {"completed": True, "partial": False}, "hermes"),
        ({"conversations": [*PLAIN["conversations"], {"from": "gpt", "value": "<tool_call>\n{}\n</tool_call>"}]}, "hermes"),
        ({"text": "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>"}, "template-text"),
    ],
)
def test_rows_of_one_form_are_named_by_who_wrote_them(tmp_path, row, name):
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    for format in ("auto", "hermes", "hf"):
        assert dict(read_files([str(tmp_path / "a.jsonl")], format).formats) == {name: 1}
