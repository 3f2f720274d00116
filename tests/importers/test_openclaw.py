"""Turn records put together again, with what the judge said of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.data.importers.formats.openclaw import Sessions, is_judge, is_turn, read_judge, read_turn
from clawpipe.data.importers.strict_json import RefusedError


def turn(number, history, response, session="s1", **more):
    messages = [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(history)]
    row = {"session_id": session, "turn": number, "messages": messages, "prompt_text": "...", "response_text": response}
    return row | {"tool_calls": None, "next_state": None} | more


def joined(*rows, judged=()):
    sessions = Sessions()
    for record in [*map(read_turn, rows), *map(read_judge, judged)]:
        sessions.add(record)
    return list(sessions.joined())


FIRST = turn(1, ["hi"], "hey", next_state={"role": "user", "content": "more"}, timestamp="2026-01-01 00:00:00")
SECOND = turn(2, ["hi", "hey", "more"], "sure", next_state={"role": "user", "content": "thanks"})


def test_the_turns_of_a_session_become_one_conversation():
    [conversation] = joined(SECOND, FIRST)
    assert is_turn(FIRST)
    assert [message.content for message in conversation.messages] == ["hi", "hey", "more", "sure", "thanks"]
    assert conversation.session == "s1"
    assert conversation.kinds == ("main", "main")
    assert conversation.extra["turns"][0] == {"turn": 1, "reply": 0, "timestamp": "2026-01-01 00:00:00"}


def test_an_edited_history_begins_a_new_conversation():
    compacted = turn(3, ["[summary]", "ok", "next"], "done")
    first, second = joined(FIRST, SECOND, compacted)
    assert len(first.messages) == 5
    assert second.kinds == ("side", "main")  # "ok" is nobody's recorded turn


def test_heartbeats_are_apart():
    main, side = joined(FIRST, turn(1, ["ping"], "pong", session="agent:heartbeat"))
    assert (main.kinds, side.kinds) == (("main",), ("side",))
    [flagged] = joined(turn(1, ["ping"], "pong", turn_type="cron"))
    assert flagged.kinds == ("side",)


@pytest.mark.parametrize(
    ("row", "value", "hints"),
    [
        ({"score": -1, "votes": [-1, "fail", 1]}, -1.0, ()),
        ({"accepted": True, "hint": "Ask for the size first.", "hint_len": 23, "votes": []}, 0.0, ("Ask for the size first.",)),
        ({"accepted": True, "K_i": 2, "hints": ["Ask for the size.", "short"], "votes": []}, 0.0, ("Ask for the size.",)),
        ({"accepted": False, "hint": "Ask for the size first.", "votes": []}, 0.0, ()),
    ],
)
def test_judgements_join_by_session_and_turn(row, value, hints):
    judged = row | {"session_id": "s1", "turn": 2}
    [conversation] = joined(FIRST, SECOND, judged=[judged])
    [judgement] = conversation.judgements
    assert is_judge(judged)
    assert (judgement.value, judgement.turn, judgement.hints, judgement.origin) == (value, 1, hints, "judge")


def test_a_hint_joins_the_score_of_its_turn():
    scored = {"session_id": "s1", "turn": 1, "score": -1, "votes": [-1, "fail"]}
    hinted = {"session_id": "s1", "turn": 1, "accepted": True, "hint": "Ask for the size first.", "votes": [{"vote_id": 0}]}
    [conversation] = joined(FIRST, judged=[hinted, scored])
    [judgement] = conversation.judgements
    assert (judgement.value, judgement.hints, judgement.turn) == (-1, ("Ask for the size first.",), 0)
    assert judgement.evidence["votes"] == [-1, "fail"]
    assert judgement.evidence["hinted"][0]["votes"] == [{"vote_id": 0}]


def test_judgements_of_turns_that_nobody_recorded_are_told():
    sessions = Sessions()
    sessions.add(read_turn(FIRST))
    for number in (1, 2, 2):
        sessions.add(read_judge({"session_id": "s1", "turn": number, "score": 1}))
    assert {turn: len(records) for turn, records in sessions.orphans().items()} == {("s1", 2): 2}


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=3, max_size=9), st.randoms(use_true_random=False))
def test_turns_of_a_session_join_in_any_order(texts, random):
    texts = texts[: (len(texts) - 1) // 2 * 2 + 1]
    records = [turn(number + 1, texts[: 2 * number + 1], texts[2 * number + 1]) for number in range(len(texts) // 2)]
    records[-1]["next_state"] = {"role": "user", "content": texts[-1]}
    random.shuffle(records)
    [conversation] = joined(*records)
    assert [message.content for message in conversation.messages] == texts
    assert conversation.kinds == ("main",) * (len(texts) // 2)


def test_several_calls_and_their_results_come_through():
    calls = [{"id": str(number), "function": {"name": "f", "arguments": arguments}} for number, arguments in enumerate(("{}", "{"))]
    answer = {"role": "tool", "content": "error: no", "tool_call_id": "0"}
    [conversation] = joined(turn(1, ["go"], "", tool_calls=calls, next_state=answer))
    assert [call.malformed for call in conversation.messages[1].tool_calls] == [False, True]
    assert (conversation.tool_calls, conversation.tool_errors) == (2, 2)


CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
GIVEN = {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("response", "calls", "text", "found"),
    [
        (f"Look.\n{CALL}<|im_end|>\n", [GIVEN], "Look.", [("x", "f", False)]),
        (f"{CALL}<|im_end|>", None, "", [("call_1_0", "f", False)]),
        (f"<tool_call>\n{{f}}\n</tool_call>\n{CALL}", [GIVEN], "", [("call_1_0", "", True), ("x", "f", False)]),
    ],
)
def test_template_markup_is_removed_and_calls_are_kept_once(response, calls, text, found):
    said = read_turn(turn(1, ["go"], response, tool_calls=calls)).response
    assert said.content == text
    assert [(call.id, call.name, call.malformed) for call in said.tool_calls] == found


def test_a_thought_that_the_prompt_began_gets_its_tag_back():
    row = turn(1, ["go"], "hm\n</think>\n\nyes<|im_end|>\n", prompt_text="<|im_start|>assistant\n<think>\n")
    assert read_turn(row).response.content == "<think>\nhm\n</think>\n\nyes"


def test_records_that_lack_something_are_refused():
    with pytest.raises(RefusedError, match="session_id: missing"):
        read_turn({name: value for name, value in FIRST.items() if name != "session_id"})
    with pytest.raises(RefusedError, match="score: missing"):
        read_judge({"session_id": "s", "turn": 1, "votes": []})
