"""Chat messages in the API's form, alone and as logged requests with their responses."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.formats.answered import read_completion
from clawpipe.data.importers.formats.chat import is_chat
from clawpipe.data.importers.formats.chat import read_chat as read_choices
from clawpipe.data.importers.formats.hermes import read_hermes, read_session
from clawpipe.data.importers.message import read_messages, write_chat
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.wire.arguments import tool_call
from tests.importers.reading import read_files


def read_chat(row):
    [conversation] = read_choices(row)
    return conversation


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
    assert user.content == "See \n[image_url: file:cat.png]"
    assert spoken.content == "<think>\nlook it up\n</think>\n"
    assert [(call.id, call.malformed) for call in spoken.tool_calls] == [("c1", False), ("c2", True)]
    assert (first.tool_call_id, second.tool_call_id) == ("c1", "c2")
    assert conversation.kinds == ("main", "side")
    assert (conversation.session, conversation.user) == ("s1", "u")
    assert conversation.extra == {"colour": "red", "messages": [{"message": 1, "content": {"unread": MESSAGES[1]["content"][1:]}}]}


@pytest.mark.parametrize("name", ["weight", "loss_weight", "train", "training", "loss", "trainable"])
@pytest.mark.parametrize(("no", "yes"), [(False, True), (0, 1), (0.0, 1.0)])
def test_loss_masks_of_other_tools_make_side_turns(name, no, yes):
    bad, good = ({"content": text, name: mask} for text, mask in (("bad", no), ("good", yes)))
    chat = [{"role": "user", "content": "q"}, {"role": "assistant"} | bad, {"role": "assistant"} | good]
    session = {"id": "s", "started_at": 1, "messages": chat}
    completion = {"prompt": "q", "completion": chat[1:]}
    shared = [{"from": "human", "value": "q"}, *({"from": "gpt", "value": one["content"], name: one[name]} for one in (bad, good))]
    read = [
        read_chat({"messages": chat}),
        read_session(session),
        read_completion(completion),
        read_hermes({"conversations": shared}),
    ]
    assert [(one.kinds, one.extra.get("messages")) for one in read] == [(("side", "main"), None)] * 4


def test_a_weight_between_none_and_one_is_kept():
    conversation = read_chat({"messages": [MESSAGES[1], {"role": "assistant", "content": "a", "loss": 0.25}]})
    assert (conversation.kinds, conversation.extra["messages"][1]) == (("main",), {"message": 1, "loss": 0.25})


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


@pytest.mark.parametrize(
    "beside",
    [
        {"request": {"top_p": 0.9}},
        {"request": {"response_format": {"type": "json_object"}}},
        {"request": {"extra_body": {"min_tokens": 4}}},
        {"repetition_penalty": 1.1},
        {"optional_params": {"tool_choice": "required"}},
    ],
)
def test_log_probs_of_a_changed_draw_are_of_no_kind(beside):
    row = logged(token_ids=[7, 8], logprobs={"content": [{"logprob": -0.5}, {"logprob": -1}], "kind": "tempered"})
    asked = row["request"] | beside.get("request", {})
    assert read_chat({**row, **beside, "request": asked}).tokens.kind == "none"


@pytest.mark.parametrize(("told", "kind"), [({}, "raw"), ({"kind": "tempered"}, "tempered"), ({"kind": "x"}, "raw")])
def test_tempered_log_probs_are_not_taken_for_raw(told, kind):
    """Those of `clawpipe serve` beside token ids; taken for raw, they would give an unchanged policy ratios that are not 1."""
    row = logged(token_ids=[7, 8], logprobs={"content": [{"logprob": -0.5}, {"logprob": -1}]} | told)
    assert read_chat(row).tokens.kind == kind


SPOKEN_AS = {"content": [{"token": "he", "logprob": -0.5}, {"token": "y", "logprob": -1}]}


def test_ids_that_litellm_moved_are_found():
    """It puts what OpenAI's response does not have into `provider_specific_fields`; such a chat became text without a word."""
    moved = logged(provider_specific_fields={"token_ids": [7, 8], "stop_reason": 2}, logprobs=SPOKEN_AS)
    conversation = read_chat(moved)
    assert (list(conversation.tokens.ids), list(conversation.tokens.logprobs)) == ([5, 6, 7, 8], [0, 0, -0.5, -1])
    assert conversation.extra["choice"] == {"provider_specific_fields": {"stop_reason": 2}}
    moved["response"].pop("prompt_token_ids")
    moved["response"]["choices"][0]["provider_specific_fields"]["prompt_token_ids"] = [5, 6]
    assert list(read_chat(moved).tokens.ids) == [5, 6, 7, 8]


def test_ids_that_stand_in_place_of_token_texts_are_read():
    spelled = {"content": [{"token": "token_id:7", "logprob": -0.5}, {"token": "token_id:8", "logprob": -1}]}
    assert list(read_chat(logged(logprobs=spelled)).tokens.ids) == [5, 6, 7, 8]
    half = {"content": [{"token": "token_id:7", "logprob": -0.5}, {"token": "hey", "logprob": -1}]}
    assert read_chat(logged(logprobs=half)).tokens is None


def test_what_servers_report_is_raw():
    tokens = read_chat(logged(token_ids=[7, 8], logprobs=SPOKEN_AS)).tokens
    assert (tokens.kind, tokens.temperature) == ("raw", 1)


def test_every_choice_is_a_conversation_with_history_as_context():
    past = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hey"}, {"role": "user", "content": "more"}]
    choices = [
        {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"},
        {"index": 1, "message": {"content": "b"}, "finish_reason": "length", "logprobs": {"content": []}},
    ]
    first, second = read_choices({"messages": past, "choices": choices, "id": "request-7"})
    assert [one.messages[-1].content for one in (first, second)] == ["a", "b"]
    assert first.kinds == second.kinds == ("side", "main")
    assert (first.status, second.status) == ("completed", "truncated")
    assert second.extra == {"id": "request-7", "choice": {"index": 1, "logprobs": {"content": []}}}
    assert first.session is None  # an id in a log is that of one request


@pytest.mark.parametrize(
    "response",
    [
        {"response": "Chlorophyll.", "done": True, "done_reason": "length"},
        {"object": "text_completion", "choices": [{"text": "Chlorophyll.", "finish_reason": "length"}]},
        {"choices": [{"message": {"role": "assistant", "content": "Chlorophyll."}, "finishReason": "length"}]},
    ],
)
def test_a_prompt_without_roles_is_the_users(tmp_path, response):
    log = {"request": {"prompt": "Why is grass green?", "system": "Be brief.", "stream": False}, "response": response}
    (tmp_path / "a.jsonl").write_text(json.dumps(log))
    [read] = read_files([str(tmp_path)]).conversations
    said = [("system", "Be brief."), ("user", "Why is grass green?"), ("assistant", "Chlorophyll.")]
    assert [(message.role, message.content) for message in read.messages] == said
    assert (read.kinds, read.status) == (("main",), "truncated")


def test_an_answer_that_goes_on_with_the_request_is_no_turn(tmp_path):
    asked = [{"role": "user", "content": "As JSON."}, {"role": "assistant", "content": '{"a":'}]
    response = {"role": "assistant", "content": [{"type": "text", "text": " 1}"}], "stop_reason": "end_turn"}
    (tmp_path / "a.jsonl").write_text(json.dumps({"request": {"messages": asked}, "response": response}))
    reading = read_files([str(tmp_path)])
    assert reading.conversations[0].kinds == ("side", "side")
    assert reading.silent == {"turns that go on with an answer in the request": 1}


@pytest.mark.parametrize(
    "more",
    [
        {"headers": {"X-Session-Id": "s", "x-turn-type": "cron"}},
        {"metadata": {"session_id": "s", "turn_type": "memory"}},
        {"session_id": "s", "turn_type": "heartbeat"},
    ],
)
def test_session_and_kind_are_found_in_all_places(more):
    row = logged()
    for record in (row | more, row | {"request": row["request"] | more}):
        conversation = read_chat(record)
        assert (conversation.session, conversation.kinds) == ("s", ("side",))


def test_a_session_that_only_the_system_prompt_names():
    said = {"role": "system", "content": "Runtime: host=x | session=agent:main:openai-user:ann | model=y"}
    assert read_chat({"messages": [said, *MESSAGES[1:]]}).session == "agent:main:openai-user:ann"


def test_tools_are_counted_and_those_on_offer_kept():
    tools = [{"type": "function", "function": {"name": "stock"}}]
    for spelled in (tools, json.dumps(tools)):
        conversation = read_chat({"messages": MESSAGES, "tools": spelled})
        assert json.loads(conversation.tools) == tools
        assert (conversation.tool_calls, conversation.tool_errors) == (2, 0)


def test_what_comes_inline_is_named_by_its_digest():
    data = {"type": "input_audio", "input_audio": {"data": "AAAA" * 999, "format": "wav"}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    texts = [read_chat({"messages": [{"role": "user", "content": [part]}, MESSAGES[-1]]}).prompt for part in (data, picture, data)]
    assert texts[0] == texts[2] != texts[1]
    assert all(len(text) < 100 for text in texts)
    assert texts[1] == f"[image_url: sha256:{hashlib.sha256(b'data:image/png;base64,AAAA').hexdigest()}]"


def test_thoughts_among_the_parts_stand_in_tags():
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "57."}]
    conversation = read_chat({"messages": [MESSAGES[1], {"role": "assistant", "content": parts}]})
    assert conversation.messages[-1].content == "<think>\nhm\n</think>\n57."


def test_fields_of_messages_are_kept_with_their_place():
    stamped = MESSAGES[-1] | {"timestamp": 3}
    assert read_chat({"messages": [*MESSAGES[:5], stamped]}).extra["messages"][-1] == {"message": 5, "timestamp": 3}


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


TEXT = st.text(max_size=9)
CALLS = st.builds(tool_call, TEXT, st.dictionaries(TEXT, st.integers()) | TEXT, TEXT)
SPOKEN = st.lists(
    st.builds(Message, st.sampled_from(["system", "user"]), TEXT)
    | st.builds(Message, st.just("assistant"), TEXT, st.lists(CALLS, max_size=3).map(tuple))
    | st.builds(Message, st.just("tool"), TEXT, tool_call_id=TEXT, name=TEXT.filter(bool)),
    max_size=5,
)


@given(SPOKEN)
def test_whatever_is_written_is_read_back(messages):
    assert list(read_messages(write_chat(messages))[0]) == messages


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


def test_messages_may_be_called_a_conversation():
    """As those of LMSYS and of WildChat are, and what Goose exports."""
    said = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    row = {"conversation_id": "c1", "conversation": said, "turn": 1}
    conversation = read_chat(row)
    assert is_chat(row)
    assert (conversation.messages, conversation.session) == ((Message("user", "2+2?"), Message("assistant", "4")), "c1")
    call = {"type": "toolRequest", "id": "t", "toolCall": {"status": "success", "value": {"name": "ls", "arguments": {}}}}
    result = {"type": "toolResponse", "id": "t", "toolResult": {"value": {"content": [{"type": "text", "text": "a"}]}}}
    goose = {"id": "20261127_1", "working_dir": "/w", "message_count": 3}
    parts = [{"role": "user", "content": "ls"}, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    conversation = read_chat(goose | {"conversation": parts})
    assert ([message.role for message in conversation.messages], conversation.session) == (
        ["user", "assistant", "tool"],
        "20261127_1",
    )
    assert not is_chat({"conversation": "monday", "text": "x"})


@pytest.mark.parametrize(("given", "kept"), [("0.5", None), ("hot", "hot"), (True, True)])
def test_a_temperature_may_be_a_text_and_refuses_no_call(given, kept):
    """Settings of traces are texts in some programs. One that is no number stays where it was."""
    request = {"messages": [{"role": "user", "content": "2+2?"}], "temperature": given}
    conversation = read_chat({"request": request, "response": {"choices": [{"message": {"content": "4"}}]}})
    assert conversation.extra.get("request", {}).get("temperature") == kept
