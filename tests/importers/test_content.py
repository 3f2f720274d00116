"""Parts of content as the APIs and kits of the field write them: each is read as what it is, or kept whole and never trained on.

Shapes are those of real files and documents of each maker; the values are made up.
"""

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.message import read_messages
from clawpipe.data.importers.read.read import Reader
from clawpipe.data.importers.read.reading import Refusal
from clawpipe.data.importers.untaught import NO_CONTENT, NO_TEXT
from tests.importers.reading import read_files

ASKED = {"role": "user", "content": "How warm is Oslo?"}
CALLED = ("assistant", "I look.", ("weather", {"city": "Oslo"}), "c1")
HEARD = ("tool", "21", (), "c1")


def told(messages):
    """(role, content, name and arguments of each call, id of the call that is made or answered)."""
    for message in messages:
        calls = tuple((call.name, json.loads(call.arguments)) for call in message.tool_calls)
        ids = [call.id for call in message.tool_calls] or [message.tool_call_id]
        yield message.role, message.content, calls[0] if len(calls) == 1 else calls, ids[0] if len(ids) == 1 else tuple(ids)


ANTHROPIC = [
    {"role": "assistant", "content": [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "21"}]}]},
]  # fmt: skip
AI_SDK = [
    {"role": "assistant", "content": [
        {"type": "text", "text": "I look."},
        {"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "args": {"city": "Oslo"}}]},
    {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "weather", "result": "21"}]},
]  # fmt: skip
AI_SDK_5 = [
    {"role": "assistant", "content": [
        {"type": "text", "text": "I look."},
        {"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Oslo"}}]},
    {"role": "tool", "content": [
        {"type": "tool-result", "toolCallId": "c1", "toolName": "weather", "output": {"type": "text", "value": "21"}}]},
]  # fmt: skip
INVOCATION = {"toolCallId": "c1", "toolName": "weather", "args": {"city": "Oslo"}, "result": "21"}
VERCEL = [
    {"role": "assistant", "content": "I look.", "parts": [
        {"type": "step-start"}, {"type": "text", "text": "I look."},
        {"type": "tool-invocation", "toolInvocation": INVOCATION}]},
]  # fmt: skip
VERCEL_5 = [
    {"role": "assistant", "parts": [
        {"type": "text", "text": "I look."},
        {"type": "tool-weather", "toolCallId": "c1", "input": {"city": "Oslo"}, "output": "21"}]},
]  # fmt: skip
VERCEL_3 = [{"role": "assistant", "content": "I look.", "toolInvocations": [INVOCATION]}]
GEMINI = [
    {"role": "model", "parts": [
        {"text": "I look."}, {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Oslo"}}}]},
    {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "weather", "response": {"degrees": 21}}}]},
]  # fmt: skip
BEDROCK = [
    {"role": "assistant", "content": [
        {"text": "I look."}, {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Oslo"}}}]},
    {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"json": {"degrees": 21}}]}}]},
]  # fmt: skip
TELEMETRY = [
    {"role": "assistant", "parts": [
        {"type": "text", "content": "I look."},
        {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "21"}]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("given_messages", "answer"),
    [
        (ANTHROPIC, "21"),
        (AI_SDK, "21"),
        (AI_SDK_5, "21"),
        (VERCEL, "21"),
        (VERCEL_5, "21"),
        (VERCEL_3, "21"),
        (GEMINI, '{"degrees": 21}'),
        (BEDROCK, '{"degrees": 21}'),
        (TELEMETRY, "21"),
    ],
    ids=["anthropic", "ai-sdk-4", "ai-sdk-5", "vercel-4", "vercel-5", "vercel-3", "gemini", "bedrock", "telemetry"],
)
def test_a_call_and_its_answer_are_read_from_every_form(given_messages, answer):
    said = read_messages([ASKED, *given_messages])
    assert list(told(said.messages))[1:] == [CALLED, ("tool", answer, (), "c1")]
    assert not said.unread


def test_typed_parts_of_llama_factory_are_read():
    """All 500 rows of its public SFT file and 274 messages of its tool-use file were placeholders."""
    call = {"type": "tool_call", "value": '{"name": "weather", "arguments": {"city": "Oslo"}}'}
    said = read_messages(
        [
            {"role": "user", "content": [{"type": "text", "value": "How warm?"}], "loss_weight": 0.0},
            {"role": "assistant", "content": [{"type": "reasoning", "value": "I need a tool."}, call], "loss_weight": 0.0},
            {"role": "tool", "content": [{"type": "text", "value": "21"}]},
            {"role": "assistant", "content": [{"type": "text", "value": "21 degrees."}], "loss_weight": 1.0},
        ]
    )
    _, called, heard, last = told(said.messages)
    assert called[:3] == ("assistant", "<think>\nI need a tool.\n</think>\n", ("weather", {"city": "Oslo"}))
    assert (heard[:2], last[:2]) == (("tool", "21"), ("assistant", "21 degrees."))
    assert (said.muted, said.unknown) == ({0, 1}, [])


def test_several_steps_of_one_message_are_as_many_turns():
    """Calls of a step stand side by side, and what is said after their answers is the next turn."""
    second = {"type": "tool-invocation", "toolInvocation": INVOCATION | {"toolCallId": "c2", "result": {"degrees": 19}}}
    first = {"type": "tool-invocation", "toolInvocation": INVOCATION}
    said = read_messages([ASKED, {"role": "assistant", "parts": [first, second, {"type": "text", "text": "Warm."}]}])
    _, called, *heard, last = told(said.messages)
    assert called[3] == ("c1", "c2")
    assert [(content, call) for _, content, _, call in heard] == [("21", "c1"), ('{"degrees": 19}', "c2")]
    assert last[:2] == ("assistant", "Warm.")


def test_what_a_user_says_beside_an_answer_stands_after_it():
    parts = [{"type": "text", "text": "And Rome?"}, {"type": "tool_result", "tool_use_id": "c1", "content": "21"}]
    said = read_messages([ASKED, ANTHROPIC[0], {"role": "user", "content": parts}])
    assert list(told(said.messages))[2:] == [HEARD, ("user", "And Rome?", (), None)]


@pytest.mark.parametrize(
    "message",
    [{"content": None, "refusal": "I cannot."}, {"content": [{"type": "refusal", "refusal": "I cannot."}]}],
)
def test_a_refusal_is_what_was_said(message):
    assert read_messages([ASKED, {"role": "assistant"} | message]).messages[1].content == "I cannot."


def test_a_thought_and_its_signature_are_kept():
    parts = [{"type": "thinking", "thinking": "Hm.", "signature": "x7"}, {"type": "text", "text": "21", "citations": ["a"]}]
    said = read_messages([ASKED, {"role": "assistant", "content": parts}])
    assert said.messages[1].content == "<think>\nHm.\n</think>\n21"
    beside = [{"part": 0, "type": "thinking", "signature": "x7"}, {"part": 1, "type": "text", "citations": ["a"]}]
    assert said.unknown == [{"message": 1, "content": {"beside": beside}}]


def test_of_parts_and_content_that_differ_both_are_kept():
    said = read_messages([ASKED, {"role": "assistant", "content": "older", "parts": [{"type": "text", "text": "newer"}]}])
    assert said.messages[1].content == "newer"
    assert said.unknown == [{"message": 1, "content": "older"}]


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SCREEN = [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {"data": "AAAA"}}]}]
TEXT = [{"type": "tool_result", "tool_use_id": "t", "content": [{"json": {"a": 1}}]}]
CLICK = [{"type": "tool_use", "id": "t", "name": "click", "input": {}}]


@pytest.mark.parametrize(
    ("messages", "kinds"),
    [
        ([("user", [PICTURE]), ("assistant", "a cat"), ("user", "q"), ("assistant", "a")], ("side", "side")),
        ([("user", "q"), ("assistant", "a"), ("user", [PICTURE]), ("assistant", "a cat")], ("main", "side")),
        ([("user", "q"), ("assistant", CLICK), ("user", SCREEN), ("assistant", "a cat")], ("main", "side")),
        ([("user", "q"), ("assistant", CLICK), ("user", TEXT), ("assistant", "a")], ("main", "main")),
    ],
)
def test_a_turn_after_a_picture_teaches_nothing(messages, kinds, tmp_path):
    said = [{"role": role, "content": content} for role, content in messages]
    for row in ({"messages": said}, {"prompt": said[:1], "completion": said[1:]}):
        (tmp_path / "a.jsonl").write_text(json.dumps(row))
        reading = read_files([str(tmp_path)])
        assert reading.conversations[0].kinds == kinds
        assert reading.silent.total() == kinds.count("side")


def test_the_thoughts_of_ollama_stand_before_the_text():
    told = {"role": "assistant", "content": "a", "thinking": "hm"}
    assert read_messages([told]).messages[0].content == "<think>\nhm\n</think>\na"
    read = read_messages([told | {"thinking": True}])
    assert (read.messages[0].content, read.unknown) == ("a", [{"message": 0, "thinking": True}])


def test_a_picture_in_an_answer_stays_where_it_was():
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "see "}, picture]}
    said = read_messages([ASKED, ANTHROPIC[0], {"role": "user", "content": [answer]}])
    assert said.messages[2].content.startswith("see \n[image: sha256:")
    [kept] = said.unknown
    assert kept["content"]["beside"][0]["content"] == answer["content"]


UNKNOWN = {"type": "hologram", "light": [1, {"deep": True}]}


def read(record, folder):
    file = folder / "one.jsonl"
    file.write_bytes(orjson.dumps(record) + b"\n")
    reader = Reader()
    found = [*reader.file(str(file)), *reader.sessions()]
    return reader.reading, found


def test_unknown_parts_are_kept_and_their_turns_not_trained_on(tmp_path):
    spoken = [{"role": "assistant", "content": [UNKNOWN]}, ASKED, {"role": "assistant", "content": "21"}]
    reading, [conversation] = read({"messages": [ASKED, *spoken]}, tmp_path)
    assert conversation.messages[1].content.startswith("[hologram: sha256:")
    assert conversation.extra["messages"] == [{"message": 1, "content": {"unread": [UNKNOWN]}}]
    assert (conversation.kinds, reading.silent) == (("side", "main"), {NO_TEXT: 1})


@pytest.mark.parametrize("content", [None, "", " \n", [], "<think>\nhm\n</think>\n", [{"type": "text", "text": ""}]])
def test_a_turn_without_content_is_not_trained_on(content, tmp_path):
    """With the quick way of the usual line and without."""
    for more in ({}, {"colour": "red"}):
        spoken = [{"role": "assistant", "content": content}, ASKED, {"role": "assistant", "content": "21"}]
        reading, [conversation] = read({"messages": [ASKED, *spoken]} | more, tmp_path)
        assert (conversation.kinds, reading.silent) == (("side", "main"), {NO_CONTENT: 1})


def test_a_turn_that_only_calls_is_trained_on(tmp_path):
    reading, [conversation] = read({"messages": [ASKED, ANTHROPIC[0]]}, tmp_path)
    assert (conversation.kinds, reading.silent) == (("main",), {})


def test_sampled_tokens_of_an_empty_turn_stay(tmp_path):
    """They are what the policy said, and a reward of it is evidence."""
    row = {"tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [0.0], "inference_logprobs": [[1.0, -0.5]]}
    _, [conversation] = read(row | {"messages": [[ASKED, {"role": "assistant", "content": ""}]]}, tmp_path)
    assert conversation.kinds == ("main",)


@pytest.mark.parametrize(
    ("side", "reason"), [("", f"rejected: {NO_CONTENT}"), ([{"role": "assistant", "content": [UNKNOWN]}], f"rejected: {NO_TEXT}")]
)
def test_a_pair_with_such_a_turn_is_rejected(side, reason, tmp_path):
    _, [refusal] = read({"prompt": "q", "chosen": "a", "rejected": side}, tmp_path)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason


KINDS = st.sampled_from(
    ["text", "tool_use", "tool_result", "thinking", "tool-call", "tool-result", "tool-invocation", "tool-x", "reasoning", "odd"]
)
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2)
)
NAMES = ["text", "value", "content", "id", "name", "input", "tool_use_id", "toolCallId", "toolName", "args", "result", "output"]
FIELDS = st.sampled_from([*NAMES, "thinking", "functionCall", "toolInvocation", "function", "source", "more"])
PARTS = st.dictionaries(FIELDS, VALUES, max_size=4).flatmap(lambda part: KINDS.map(lambda kind: part | {"type": kind})) | VALUES


def leaves(value):
    if isinstance(value, dict):
        for key, part in value.items():
            yield from (key, *leaves(part))
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part)
    elif isinstance(value, str) and value:
        yield value


@settings(deadline=None, max_examples=300)
@given(parts=st.lists(PARTS, min_size=1, max_size=4), role=st.sampled_from(["user", "assistant", "tool"]))
def test_no_text_of_any_part_is_lost(parts, role):
    """It is in a message or in what is kept beside them; kinds of known parts and names of their fields alone may go."""
    said = read_messages([{"role": role, "content": parts}])
    kept = json.dumps([message.as_dict() for message in said.messages], ensure_ascii=False) + json.dumps(said.unknown)
    held = kept + "".join(str(value) for value in leaves(json.loads(json.dumps(said.unknown))))
    spoken = "".join(message.content + "".join(call.arguments + call.name + call.id for call in message.tool_calls)
                     + (message.tool_call_id or "") + (message.name or "") for message in said.messages)  # fmt: skip
    for part in parts:
        inner = [part[name] for name in part if name != "type"] if isinstance(part, dict) else [part]
        for text in (leaf for value in inner for leaf in leaves(value)):
            assert text in NAMES or text in held or text in spoken or json.dumps(text, ensure_ascii=False)[1:-1] in spoken


ASKED = {"role": "user", "content": "q"}
CALLING = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
CALLS = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}
FAILED = {
    "Anthropic": [
        CALLING,
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}]},
    ],
    "beside an answer": [CALLS, {"role": "tool", "tool_call_id": "c", "content": "no", "is_error": True}],
    "LangChain": [CALLS, {"role": "tool", "tool_call_id": "c", "content": "no", "status": "error"}],
    "AI SDK": [{"role": "assistant", "parts": [{"type": "tool-f", "toolCallId": "c", "state": "output-error", "errorText": "no"}]}],
    "Bedrock": [
        CALLING,
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "status": "error", "content": [{"text": "no"}]}}]},
    ],
}


@pytest.mark.parametrize("spoken", FAILED.values(), ids=FAILED)
def test_a_result_marked_as_failure_is_a_failed_call(spoken):
    [conversation] = read_chat({"messages": [ASKED, *spoken, {"role": "assistant", "content": "I am sorry."}]})
    assert (conversation.tool_calls, conversation.tool_errors) == (1, 1)


@pytest.mark.parametrize("flag", [{"is_error": False}, {}, {"status": "success"}])
def test_a_result_not_marked_as_failure_is_not_failed(flag):
    answered = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no such file"} | flag]}
    [conversation] = read_chat({"messages": [ASKED, CALLING, answered]})
    assert (conversation.tool_calls, conversation.tool_errors) == (1, 0)
