"""Chat messages in the API's form, alone and as logged requests with their responses."""

import pytest

from clawpipe.importers.chat import is_chat, read_chat, write_chat
from clawpipe.importers.strict import RefusedError

CALL = {"id": "c1", "type": "function", "function": {"name": "stock", "arguments": '{"item": "kettle"}'}}
BROKEN = {"id": "c2", "type": "function", "function": {"name": "stock", "arguments": '{"item": '}}
MESSAGES = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "See "}, {"type": "image_url", "image_url": {"url": "file:cat.png"}}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL, BROKEN], "reasoning_content": "look it up"},
    {"role": "tool", "content": "57", "tool_call_id": "c1"},
    {"role": "tool", "content": "error", "tool_call_id": "c2"},
    {"role": "assistant", "content": "57.", "weight": 0},
]


def test_parallel_calls_images_and_reasoning_come_through():
    conversation = read_chat({"messages": MESSAGES, "tools": [], "session_id": "s1", "user": "u", "colour": "red"})
    system, user, spoken, first, second, _ = conversation.messages
    assert system.role == "system"
    assert user.content == "See [image_url: file:cat.png]"
    assert spoken.content == "<think>\nlook it up\n</think>\n"
    assert [(call.id, call.malformed) for call in spoken.tool_calls] == [("c1", False), ("c2", True)]
    assert (first.tool_call_id, second.tool_call_id) == ("c1", "c2")
    assert conversation.kinds == ("main", "side")
    assert (conversation.session, conversation.user) == ("s1", "u")
    assert conversation.extra == {"tools": [], "colour": "red"}


def logged(**choice):
    return {
        "request": {"messages": [{"role": "user", "content": "hi"}], "model": "small", "temperature": 1},
        "response": {"id": "r", "prompt_token_ids": [5, 6], "choices": [{"message": {"content": "hey"}} | choice]},
    }


def test_a_logged_response_ends_the_conversation():
    row = logged(token_ids=[7, 8], logprobs={"content": [{"logprob": -0.5}, {"logprob": -1}]})
    conversation = read_chat(row)
    assert is_chat(row)
    assert [message.content for message in conversation.messages] == ["hi", "hey"]
    assert conversation.model == "small"
    assert list(conversation.tokens.ids) == [5, 6, 7, 8]
    assert list(conversation.tokens.mask) == [False, False, True, True]
    assert list(conversation.tokens.logprobs) == [0, 0, -0.5, -1]


def test_without_all_of_its_log_probs_a_response_is_text():
    assert read_chat(logged(token_ids=[7])).tokens is None
    assert read_chat(logged()).tokens is None
    with pytest.raises(RefusedError, match="logprobs"):
        read_chat(logged(token_ids=[7, 8], logprobs={"content": [{"logprob": -1}]}))


def test_heartbeats_are_side_turns():
    assert read_chat({"messages": [*MESSAGES[:5], {"role": "assistant", "content": ""}], "turn_type": "heartbeat"}).kinds == (
        "side",
        "side",
    )


def test_what_is_written_is_read_back():
    messages = read_chat({"messages": MESSAGES}).messages
    assert read_chat({"messages": write_chat(messages)}).messages == messages


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([{"role": "user", "content": "x"}], "no assistant"),
        ([{"role": "wizard", "content": "x"}], "role: not"),
        ([{"role": "user", "content": 3}], "content: not str or list"),
        ([{"content": "x"}], "role: missing"),
    ],
)
def test_what_is_no_conversation_is_refused(messages, reason):
    with pytest.raises(RefusedError, match=reason):
        read_chat({"messages": messages})
