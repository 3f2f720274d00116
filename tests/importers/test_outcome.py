"""Outcomes and shapes that stand beside a conversation are read as what they are; what only sounds like an outcome is told.

Shapes are those of public data sets, agents' files and proxies' logs; the values are made up.
"""

import json

import orjson
import pytest

from clawpipe.data.importers.outcome import unread_outcomes
from clawpipe.data.importers.read.read import Reader
from clawpipe.data.importers.read.reading import Refusal
from clawpipe.data.importers.record import Preference

SAID = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
TURNS = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]


def read(record, folder):
    file = folder / "one.jsonl"
    file.write_bytes(orjson.dumps(record) + b"\n")
    reader = Reader()
    found = [*reader.file(str(file)), *reader.sessions()]
    return reader.reading, found


def one(record, folder):
    _, [found] = read(record, folder)
    assert not isinstance(found, Refusal), found.reason
    return found


@pytest.mark.parametrize("row", [{"messages": SAID}, {"conversations": TURNS}, {"prompt": "q", "completion": "a"},
                                 {"instruction": "q", "output": "a"}])  # fmt: skip
@pytest.mark.parametrize(
    ("columns", "value", "success"),
    [
        ({"reward": 0.25}, 0.25, None),
        ({"score": -2}, -2.0, None),
        ({"success": False}, 0.0, False),
        ({"label": True}, 1.0, True),
        ({"label": 0}, 0.0, False),
        ({"kto_tag": True}, 1.0, True),
        ({"reward": 0.5, "success": True}, 0.5, True),
    ],
)
def test_an_outcome_beside_a_conversation_is_its_score(row, columns, value, success, tmp_path):
    conversation = one(row | columns, tmp_path)
    [judgement] = conversation.judgements
    assert (judgement.value, judgement.success, judgement.origin) == (value, success, "custom")
    assert not columns.keys() & conversation.extra.keys()


@pytest.mark.parametrize(
    ("columns", "up"),
    [({"thumbs": "up"}, True), ({"thumbs": "Thumbs Down"}, False), ({"feedback": "👍"}, True), ({"thumb": -1}, False),
     ({"user_feedback": "negative"}, False), ({"thumbs": False}, False)],
)  # fmt: skip
def test_a_thumb_beside_a_conversation_is_its_users_score(columns, up, tmp_path):
    conversation = one({"messages": SAID} | columns, tmp_path)
    [judgement] = conversation.judgements
    assert (judgement.value, judgement.success, judgement.origin) == (float(up), up, "user")
    assert not columns.keys() & conversation.extra.keys()


@pytest.mark.parametrize("value", ["It was too long.", 0, 4, ["up"], None])
def test_a_feedback_that_is_no_thumb_is_kept(value, tmp_path):
    conversation = one({"messages": SAID, "feedback": value, "id": "c"}, tmp_path)
    assert conversation.judgements == ()
    assert conversation.extra.get("feedback") == value


def test_a_thumb_does_not_hide_a_reward(tmp_path):
    found = one({"messages": SAID, "thumbs": "down", "reward": 0.5}, tmp_path).judgements
    assert [(judgement.origin, judgement.value) for judgement in found] == [("user", 0.0), ("custom", 0.5)]


@pytest.mark.parametrize("value", ["good", [1], 3.5, {"a": 1}])
def test_a_label_that_is_no_truth_is_kept_and_told(value, tmp_path):
    reading, [conversation] = read({"messages": SAID, "label": value, "is_correct": False, "topic": "x"}, tmp_path)
    assert conversation.judgements == ()
    assert conversation.extra == {"label": value, "is_correct": False, "topic": "x"}
    assert reading.outcomes == {"label": 1, "is_correct": 1}


def test_words_for_outcomes_are_found_in_any_spelling():
    yes = ["reward_model", "humanRating", "TESTS_PASSED", "isCorrect", "user-feedback"]
    no = ["labelled", "passage", "scorer", "id", "grader_version", "correction"]
    assert unread_outcomes(dict.fromkeys([*yes, *no])) == yes


def test_speakers_of_tool_data_are_read(tmp_path):
    """153 of 300 rows of a public tool-call file were set aside."""
    call = json.dumps({"name": "find", "arguments": {"dish": "rice"}})
    turns = [TURNS[0], {"from": "function_call", "value": call}, {"from": "observation", "value": "[]"}, TURNS[1]]
    conversation = one({"conversations": turns, "system": "Be brief.", "tools": "[]"}, tmp_path)
    roles = [message.role for message in conversation.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    [made] = conversation.messages[2].tool_calls
    assert (made.name, made.arguments, made.malformed) == ("find", '{"dish": "rice"}', False)
    assert conversation.messages[3].tool_call_id == made.id


def test_calls_of_speakers_in_a_row_are_one_turn(tmp_path):
    calls = [{"role": "tool_call", "content": json.dumps({"name": name, "arguments": {}})} for name in "fg"]
    answers = [{"role": "tool_response", "content": text} for text in ("1", "2")]
    conversation = one({"messages": [SAID[0], *calls, *answers, SAID[1]]}, tmp_path)
    assert [[call.name for call in message.tool_calls] for message in conversation.messages] == [[], ["f", "g"], [], [], []]
    assert len({call.id for call in conversation.messages[1].tool_calls}) == 2


@pytest.mark.parametrize(
    ("asked", "role"), [([{"role": "user", "content": "go"}], "tool"), ([{"role": "environment", "content": "go"}], "user")]
)
def test_an_environment_answers_or_asks(asked, role, tmp_path):
    said = [
        *asked,
        {"role": "agent", "content": "ls"},
        {"role": "environment", "content": "a.txt"},
        {"role": "agent", "content": "ok"},
    ]
    conversation = one({"messages": said}, tmp_path)
    assert [message.role for message in conversation.messages] == ["user", "assistant", role, "assistant"]


@pytest.mark.parametrize(
    "row",
    [
        {"conversations": TURNS[:1], "chosen": TURNS[1], "rejected": {"from": "gpt", "value": "b"}},
        {"messages": SAID[:1], "chosen": SAID[1], "rejected": {"role": "assistant", "content": "b"}},
        {"instruction": "q", "input": "", "chosen": "a", "rejected": "b"},
        {
            "chosen_messages": SAID,
            "rejected_messages": [SAID[0], {"role": "assistant", "content": [{"type": "text", "value": "b"}]}],
        },
    ],
    ids=["sharegpt", "chat", "alpaca", "llama-factory-1"],
)
def test_a_preference_is_one_in_every_form(row, tmp_path):
    """106 of 300 public preferences became plain trajectories, and the others were set aside."""
    pair = one(row, tmp_path)
    assert isinstance(pair, Preference)
    sides = [[message.content for message in side] for side in (pair.prompt, pair.chosen, pair.rejected)]
    assert sides == [["q"], ["a"], ["b"]]


def test_an_alpaca_row_is_a_conversation(tmp_path):
    row = {
        "instruction": "Sum up.",
        "input": "Long text.",
        "output": "Short.",
        "system": "s",
        "history": [["hi", "hey"]],
        "topic": 1,
    }
    conversation = one(row, tmp_path)
    said = [(message.role, message.content) for message in conversation.messages]
    assert said == [("system", "s"), ("user", "hi"), ("assistant", "hey"), ("user", "Sum up.\nLong text."), ("assistant", "Short.")]
    assert (conversation.kinds, conversation.extra) == (("main", "main"), {"topic": 1})


@pytest.mark.parametrize("name", ["system", "system_prompt"])
def test_a_system_message_beside_the_messages_is_one(name, tmp_path):
    """Of Hermes' session files 55 kB of it were in `extra` alone."""
    conversation = one({"messages": SAID, name: "Be brief."}, tmp_path)
    assert conversation.messages[0].content == "Be brief."
    assert conversation.extra == {}
    both = one({"messages": [{"role": "system", "content": "s"}, *SAID], name: "Be brief."}, tmp_path)
    assert (both.messages[0].content, both.extra) == ("s", {name: "Be brief."})


def test_hermes_session_files_with_cron_turns_as_side_turns(tmp_path):
    session = {"session_id": "20261101_a1", "session_start": "2026-11-01T08:00:00", "platform": "cron", "model": "m",
               "system_prompt": "You are Hermes.", "tools": [], "messages": SAID, "message_count": 2}  # fmt: skip
    reading, [conversation] = read(session, tmp_path)
    assert dict(reading.formats) == {"hermes-session": 1}
    assert (conversation.session, conversation.kinds) == ("20261101_a1", ("side",))
    assert [message.role for message in conversation.messages] == ["system", "user", "assistant"]
    assert one({"messages": SAID, "platform": "cron"}, tmp_path).kinds == ("side",)


ASKED = {"messages": SAID[:1], "model": "m"}


@pytest.mark.parametrize(
    ("request_", "response", "status"),
    [
        (ASKED, {"role": "assistant", "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn"}, "completed"),
        (ASKED, {"message": {"role": "assistant", "content": "a"}, "done_reason": "length"}, "truncated"),
        (ASKED, {"message": {"role": "assistant", "content": "a"}, "done": False}, "aborted"),
        (ASKED, {"message": {"role": "assistant", "content": "a"}, "done": True, "done_reason": "stop"}, "completed"),
        (ASKED, {"content": "a", "finishReason": "length"}, "truncated"),
        (ASKED, "a", None),
        (ASKED, {"choices": [{"message": {"content": "a"}, "finish_reason": None}]}, "aborted"),
        (ASKED, {"choices": [{"message": {"content": "a"}}]}, None),  # a log without the field
        (ASKED, {"choices": [{"message": {"content": "a"}, "finish_reason": "content_filter"}]}, "aborted"),
        (ASKED, {"role": "assistant", "content": "a", "stop_reason": None}, "aborted"),
        (ASKED, json.dumps({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}), "completed"),
        (json.dumps(ASKED), {"choices": [{"text": "a", "finish_reason": "stop"}]}, "completed"),
        (
            {"contents": [{"role": "user", "parts": [{"text": "q"}]}], "model": "m"},
            {"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}, "finishReason": "MAX_TOKENS"}]},
            "truncated",
        ),
    ],
    ids=[
        "anthropic",
        "ollama",
        "not done",
        "done",
        "ai sdk",
        "text",
        "null",
        "none",
        "filter",
        "anthropic null",
        "spelled",
        "completions",
        "gemini",
    ],
)
def test_the_response_of_a_log_is_the_answer(request_, response, status, tmp_path):
    conversation = one({"request": request_, "response": response}, tmp_path)
    assert [(message.role, message.content) for message in conversation.messages] == [("user", "q"), ("assistant", "a")]
    assert (conversation.kinds, conversation.status, conversation.model) == (("main",), status, "m")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"status": "completed"}, "completed"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "truncated"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "aborted"),
        ({"status": "incomplete"}, "truncated"),
        ({"status": "failed"}, "aborted"),
        ({"status": "in_progress"}, "aborted"),
        ({"status": None}, "aborted"),
        ({}, "completed"),
    ],
)
def test_a_response_says_how_it_ended(fields, status, tmp_path):
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}]
    assert one({"request": {"input": "q"}, "response": {"output": output} | fields}, tmp_path).status == status
    cut = [output[0] | {"status": "incomplete"}]
    assert one({"request": {"input": "q"}, "response": {"output": cut}}, tmp_path).status == "truncated"


CUT_OFF = {"role": "assistant", "content": "a", "finish_reason": "length"}


def test_a_message_or_a_row_may_say_how_it_ended(tmp_path):
    assert one({"messages": [SAID[0], CUT_OFF]}, tmp_path).status == "truncated"
    assert one({"messages": SAID, "finish_reason": "content_filter"}, tmp_path).status == "aborted"
    assert one({"messages": SAID, "stop_reason": "end_turn"}, tmp_path).status == "completed"
    for row in ({"messages": SAID}, {"prompt": "q", "completion": "a"}):
        assert one(row | {"finishReason": "length"}, tmp_path).status == "truncated"
    assert one({"prompt": "q", "completion": "a", "finish_reason": "length"}, tmp_path).status == "truncated"


def test_a_reply_that_was_cut_in_mid_conversation_is_context(tmp_path):
    for cut in (CUT_OFF, {"role": "assistant", "content": "a", "finishReason": "length"}):
        reading, [found] = read({"messages": [SAID[0], cut, *SAID]}, tmp_path)
        assert (found.kinds, found.status) == (("side", "main"), None)
        assert dict(reading.silent) == {"turns that were cut short": 1}


def test_a_preference_for_a_cut_answer_is_refused(tmp_path):
    _, [refusal] = read({"prompt": "q", "chosen": [CUT_OFF], "rejected": "b"}, tmp_path)
    assert refusal.reason == "chosen: turns that were cut short"


def test_a_logged_error_is_no_answer(tmp_path):
    """Its history was learned from as if it had been sampled."""
    _, [refusal] = read({"request": {"messages": [*SAID, SAID[0]]}, "response": {"error": {"code": 529}}}, tmp_path)
    assert refusal.reason == "response: no answer in it"


def test_tools_of_other_makers_keep_their_arguments(tmp_path):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    anthropic = [{"name": "weather", "description": "d", "input_schema": schema}]
    gemini = [{"functionDeclarations": [{"name": "weather", "description": "d", "parameters": schema}]}]
    for tools in (anthropic, gemini):
        told = json.loads(one({"messages": SAID, "tools": tools}, tmp_path).tools)
        assert told == [{"name": "weather", "description": "d", "parameters": schema}]
