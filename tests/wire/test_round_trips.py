"""A conversation comes back equal however it was written: by each dialect, export and format, and by whatever reads it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec, WrittenFormat
from clawpipe.data.capture.chains import chains_of
from clawpipe.data.capture.sessions import sessions_of
from clawpipe.data.importers.formats.captured_rows import conversation_of
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.formats.hermes import write_hermes
from clawpipe.data.importers.formats.responses import read_responses
from clawpipe.data.importers.formats.sharegpt import read_dialogue
from clawpipe.data.importers.message import read_messages, write_chat
from clawpipe.data.wire.arguments import comparable
from clawpipe.data.wire.dialects.responses_in import messages_of as messages_of_items
from clawpipe.data.wire.thoughts import split_thought, with_thoughts, words_of
from clawpipe.model.policy.calls import codec
from clawpipe.serve.serving.conversation import message_body, to_messages
from clawpipe.serve.serving.protocol import RequestMessage
from tests.capture.test_sessions import turn

SCHEMA = {"item": {"type": "string"}, "count": {"type": "number"}, "express": {"type": "boolean"}, "more": {"type": "object"}}
TOOL = ToolSpec("order", "Order.", {"type": "object", "properties": SCHEMA})


class Made(NamedTuple):
    """A call with its result, and whether the record of the result marks it as failed."""

    arguments: dict[str, Any]
    result: str
    failed: bool | None


class Said(NamedTuple):
    """What the user asks, and the turns that answer: each thinks, says something and calls; the last one calls nothing."""

    question: str
    turns: list[tuple[str, str, list[Made]]]
    thought: str
    answer: str


words = st.text(st.sampled_from("ab .ß漢\U0001f600\n-"), min_size=1, max_size=8).map(str.strip).filter(bool)
spelled = st.sampled_from(
    ["</think>", "<think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "null", "2", "<|call|>", 'a "b"', ""]
)
strings = words | spelled
arguments = st.fixed_dictionaries(
    {},
    optional={
        "item": strings,
        "count": st.integers(-9, 10**12) | st.floats(allow_nan=False, allow_infinity=False),
        "express": st.booleans(),
        "more": st.dictionaries(words, strings | st.none() | st.lists(st.integers(), max_size=2), max_size=2),
    },
)
made = st.builds(Made, arguments, words, st.none() | st.booleans())
turns = st.tuples(st.just("") | words, st.just("") | words, st.lists(made, min_size=1, max_size=2))
said = st.lists(st.builds(Said, words, st.lists(turns, max_size=2), st.just("") | words, words), min_size=1, max_size=2)


def steps(given):
    """Yield the turns, each with its number: the question before it or None, its thought, its text and its calls."""
    number = 0
    for one in given:
        for place, (thought, text, calls) in enumerate([*one.turns, (one.thought, one.answer, [])]):
            yield number, None if place else one.question, thought, text, calls
            number += 1


def neutral(given):
    messages = []
    for number, question, thought, text, calls in steps(given):
        messages += [Message("user", question)] if question is not None else []
        listed = [ToolCall(f"call_{number}_{k}", "order", json.dumps(one.arguments)) for k, one in enumerate(calls)]
        messages.append(Message("assistant", with_thoughts(text, [thought] if thought else []), tuple(listed)))
        messages += [
            Message("tool", one.result, tool_call_id=call.id, name="order") for call, one in zip(listed, calls, strict=True)
        ]
    return messages


def marks(messages, given):
    listed = [one.failed for *_, calls in steps(given) for one in calls]
    places = [place for place, message in enumerate(messages) if message.role == "tool"]
    return {place: mark for place, mark in zip(places, listed, strict=True) if mark is not None}


def told(messages):
    """What is compared: roles, thoughts, texts and calls."""
    parts = [
        (message, split_thought(message.content) if message.role == "assistant" else ("", message.content)) for message in messages
    ]
    return [
        (message.role, words_of(thought), text.strip(), [comparable(call) for call in message.tool_calls])
        for message, (thought, text) in parts
    ]


def openai(given, thought_field="", parts=False, encode=json.dumps):
    """Messages of the chat API; `encode` writes arguments."""

    def content(texts):
        return [{"type": "text", "text": text} for text in texts] if parts else "".join(texts)

    rows = []
    for number, question, thought, text, calls in steps(given):
        rows += [{"role": "user", "content": content([question])}] if question is not None else []
        beside = {thought_field: thought} if thought and thought_field else {}
        spoken = text if beside else with_thoughts(text, [thought] if thought else [])
        row = {"role": "assistant", "content": content([spoken[:2], spoken[2:]])} | beside
        listed = [{"name": "order", "arguments": encode(one.arguments)} for one in calls]
        called = [{"id": f"x{number}{k}", "type": "function", "function": one} for k, one in enumerate(listed)]
        rows.append(row | ({"tool_calls": called} if called else {}))
        for k, one in enumerate(calls):
            flag = {} if one.failed is None else {"is_error": one.failed}
            rows.append({"role": "tool", "tool_call_id": f"x{number}{k}", "content": content([one.result])} | flag)
    return rows


def anthropic(given):
    rows = []
    for number, question, thought, text, calls in steps(given):
        rows += [{"role": "user", "content": question}] if question is not None else []
        blocks = [{"type": "thinking", "thinking": thought, "signature": "s"}] if thought else []
        blocks += [{"type": "text", "text": part} for part in (text[:1], text[1:]) if part]
        pairs = [(f"x{number}{k}", one) for k, one in enumerate(calls)]
        blocks += [{"type": "tool_use", "id": name, "name": "order", "input": one.arguments} for name, one in pairs]
        rows.append({"role": "assistant", "content": blocks})
        results = [
            {"type": "tool_result", "tool_use_id": name, "content": [{"type": "text", "text": one.result}]}
            | ({} if one.failed is None else {"is_error": one.failed})
            for name, one in pairs
        ]
        rows += [{"role": "user", "content": results}] if results else []
    return rows


def items(given):
    """Items of the API of responses."""
    listed = []
    for number, question, thought, text, calls in steps(given):
        listed += [{"type": "message", "role": "user", "content": question}] if question is not None else []
        listed += [{"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]}] if thought else []
        spoken = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        listed += [spoken] if text else []
        names = [f"x{number}{k}" for k in range(len(calls))]
        pairs = list(zip(names, calls, strict=True))
        listed += [
            {"type": "function_call", "call_id": n, "name": "order", "arguments": json.dumps(one.arguments)} for n, one in pairs
        ]
        listed += [{"type": "function_call_output", "call_id": n, "output": one.result} for n, one in pairs]
    return listed


def twice(value):
    return json.dumps(json.dumps(value))


DIALECTS = {
    "thought in the text": openai,
    "thought in a field": lambda given: openai(given, "reasoning_content"),
    "thought in another field": lambda given: openai(given, "reasoning"),
    "texts in parts": lambda given: openai(given, parts=True),
    "arguments as objects": lambda given: openai(given, encode=lambda value: value),
    "arguments encoded twice": lambda given: openai(given, encode=twice),
    "blank arguments": lambda given: openai(given, encode=lambda value: json.dumps(value) if value else ""),
    "blocks": anthropic,
}


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=30)
@given(said=said)
def test_imports_read_what_was_said(dialect, said):
    read = read_messages(DIALECTS[dialect](said))
    assert told(read.messages) == told(neutral(said))
    assert read.failed == marks(read.messages, said)
    assert told(read_chat({"messages": DIALECTS[dialect](said)})[0].messages) == told(neutral(said))


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "blocks"])
@settings(max_examples=30)
@given(said=said)
def test_the_server_reads_what_imports_read(dialect, said):
    rows = DIALECTS[dialect](said)
    served, imported = to_messages([RequestMessage(**row) for row in rows]), read_messages(rows).messages
    assert [(one.role, one.content, one.tool_calls) for one in served] == [
        (one.role, one.content, one.tool_calls) for one in imported
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=30)
@given(said=said)
def test_a_captured_session_reads_so_too(dialect, said):
    *asked, answer = DIALECTS[dialect](said)
    [session] = sessions_of([turn(1, asked, answer)]).values()
    [chain] = chains_of(session)
    assert told(conversation_of(session, chain, SimpleNamespace(file="f", number=1)).messages) == told(neutral(said))


@settings(max_examples=30)
@given(said=said)
def test_items_of_responses_are_read_alike(said):
    listed = items(said)
    assert told(read_messages(messages_of_items(listed)).messages) == told(neutral(said))
    start = max(place for place, item in enumerate(listed) if item.get("role") == "user" or item["type"] == "function_call_output")
    record = {"request": {"input": listed[: start + 1]}, "response": {"output": listed[start + 1 :]}}
    assert told(next(read_responses(record)).messages) == told(neutral(said))


@settings(max_examples=100)
@given(said=said)
def test_exports_are_read_back(said):
    messages = neutral(said)
    assert list(read_messages(write_chat(messages)).messages) == messages
    assert told(read_dialogue(write_hermes(messages), "conversations").messages) == told(messages)
    sent = [RequestMessage(**message_body(message)) for message in messages]
    assert told(to_messages(sent)) == told(messages)


@pytest.mark.parametrize("format", get_args(WrittenFormat))
@settings(max_examples=100)
@given(said=said)
def test_formats_of_calls_are_read_back(format, said):
    """What is trained of an import is what the server writes of the same history."""
    one = codec(format, (TOOL,))
    for message in neutral(said):
        if message.role == "assistant":
            read = one.parse("".join(one.write(message)), 0)
            assert told([Message("assistant", *read)]) == told([message])
    imported, served = read_messages(openai(said)).messages, to_messages([RequestMessage(**row) for row in openai(said)])
    assert [one.write(message) for message in imported] == [one.write(message) for message in served]
