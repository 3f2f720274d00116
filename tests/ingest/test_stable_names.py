"""Names of trajectories are kept from version to version: a log of earlier runs is only worth something while they are."""

import hashlib
import json


def _named_by_hand(format: str, session: str | None, messages: list[dict], tokens: list | None, **user: str) -> str:
    """The first copy of a conversation, by the standard library alone."""
    body = {"format": format, "session": session, "messages": messages, "tokens": tokens} | user
    spelled = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    content = hashlib.sha256(spelled.encode()).hexdigest()
    return hashlib.sha256(f"{content}/0".encode()).hexdigest()[:32]


def _message(role: str, content: str, *calls: dict, answers: str | None = None, name: str | None = None) -> dict:
    return {"role": role, "content": content, "tool_calls": list(calls), "tool_call_id": answers, "name": name}


STRANGE = "".join(map(chr, [*range(1, 33), 34, 47, 92, 127, 160, 0x2028, 0xFFFE, 0x1F600]))


def test_a_text_is_named_by_what_it_says(desk, make):
    desk.write(
        "a.jsonl",
        make.lines(make.chat(STRANGE, "é", session_id="s1"), make.chat("q", "a", mood="good"), make.chat("q", "a", user="u")),
    )
    messages = [_message("user", STRANGE), _message("assistant", "é")]
    plain = [_message("user", "q"), _message("assistant", "a")]
    names = [row["trajectory_id"] for row in desk.rows(desk.ingest())]
    report = [_named_by_hand("chat", "s1", messages, None), _named_by_hand("chat", None, plain, None)]
    assert names == [*report, _named_by_hand("chat", None, plain, None, user="u")]


def test_calls_and_answers_count(desk, make):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{oops"}}
    said = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "7", "tool_call_id": "c1", "name": "f"},
    ]
    desk.write("a.jsonl", make.lines({"messages": said}))
    kept = {"id": "c1", "name": "f", "arguments": "{oops", "malformed": True}
    messages = [_message("user", "q"), _message("assistant", "", kept), _message("tool", "7", answers="c1", name="f")]
    [row] = desk.rows(desk.ingest())
    assert row["trajectory_id"] == _named_by_hand("chat", None, messages, None)


def test_tokens_count(desk, make):
    desk.write("a.jsonl", make.lines(make.group(1.0)))
    messages = [_message("user", "add"), _message("assistant", "0")]
    tokens = [[7, 8, 9, 20, 2], [False, False, False, True, True], [0.0, 0.0, 0.0, -0.5, -0.0]]
    [row] = desk.rows(desk.ingest())
    assert row["trajectory_id"] == _named_by_hand("atropos", row["session_id"], messages, tokens)


def test_a_row_of_sharegpts_form_keeps_its_name(desk, make):
    """It was called a row of Hermes once; its id is that of the rows which were stored then."""
    desk.write("a.jsonl", make.lines({"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]}))
    assert [row["trajectory_id"] for row in desk.rows(desk.ingest())] == ["217c5d2db5ddb1ad39eda0f86475d3f8"]
