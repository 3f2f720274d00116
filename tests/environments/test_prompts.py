"""Tasks from a file of prompts: the checks, beside answers written by hand, and what becomes of each line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.config.night import EnvironmentSpec
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.play.environments.checks import CHECKS, unusable
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.prompts import PromptsEnvironment, read_prompts
from tasks.keys import content_key

PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
CALL = {"name": "stock", "arguments": {"item": "lamp", "sizes": [1, {"cm": 2}]}}


def said(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", text, calls)


def call(name: str, arguments: str, malformed: bool = False) -> ToolCall:
    return ToolCall("c", name, arguments, malformed)


SAME = call("stock", '{"sizes": [1, {"cm": 2}], "item": "lamp"}')


@pytest.mark.parametrize(
    ("check", "reply", "answer", "right"),
    [
        ("exact", said(" Paris\n"), "Paris", True),
        ("exact", said("paris"), "Paris", False),
        ("normalized", said("The  Eiffel Tower!"), "eiffel tower", True),
        ("normalized", said("Eiffel Towers"), "eiffel tower", False),
        ("contains", said("I think it is Paris, France."), "paris", True),
        ("contains", said("comparison"), "paris", False),
        ("numeric", said("7 spiders have 8 legs each: 56."), 56, True),
        ("numeric", said("It costs $1,234,567.50"), "1234567.5", True),
        ("numeric", said("It weighs 12kg"), 12, True),
        ("numeric", said("\\boxed{-3}"), -3, True),
        ("numeric", said("#### 42"), "so #### 42", True),
        ("numeric", said("about 1e-3"), 0.001, True),
        ("numeric", said("56 or 57"), 56, False),
        ("numeric", said("v56"), 56, False),
        ("numeric", said("none"), 56, False),
        ("regex", said("order AB-123 is on its way"), r"[A-Z]{2}-\d{3}", True),
        ("regex", said("order"), r"^\d", False),
        ("json_schema", said('{"age": 3}'), PERSON, True),
        ("json_schema", said('Here:\n```json\n{"age": 3}\n```'), PERSON, True),
        ("json_schema", said('{"age": "3"}'), PERSON, False),
        ("json_schema", said("no JSON"), PERSON, False),
        ("tool_call", said("", SAME), CALL, True),
        ("tool_call", said("", SAME, SAME), CALL, False),
        ("tool_call", said("", call("price", "{}"), SAME), [CALL, {"name": "price"}], True),
        ("tool_call", said("", call("stock", "{", malformed=True)), CALL, False),
        ("tool_call", said("lamp"), CALL, False),
    ],
)
def test_what_a_check_accepts(check: str, reply: Message, answer: Any, right: bool):
    assert unusable(check, answer) == ""
    assert CHECKS.load(check)(reply, answer) is right


@given(st.integers(-(10**15), 10**15) | st.floats(-1e12, 1e12, allow_nan=False).map(lambda value: round(value, 3)))
def test_a_number_is_found_however_it_is_written(value: float):
    for text in (f"{value}", f"{value:,}", f"The answer is {value}.", f"2 tries: **{value:,}** units", f"x={value}"):
        assert CHECKS.load("numeric")(said(text), value)


@given(
    st.text() | st.text("0123456789eE+-.,x "),
    st.sampled_from(["exact", "normalized", "contains", "numeric", "json_schema", "tool_call"]),
)
def test_no_reply_makes_a_check_fail(text: str, check: str):
    answer = {"json_schema": PERSON, "tool_call": CALL}.get(check, "7")
    assert CHECKS.load(check)(said(text), answer) in (True, False)


def write(file: Path, *lines: Any) -> str:
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return str(file)


def questions(count: int) -> list[dict[str, Any]]:
    return [
        {"prompt": f"{number} + 1 = ?", "answer": number + 1, "slice": "even" if number % 2 == 0 else "odd"}
        for number in range(count)
    ]


def test_a_line_that_cannot_be_asked_is_rejected_with_its_reason(tmp_path):
    good = {"prompt": "1 + 1 = ?", "answer": 2}
    lines = [
        good,
        "{",
        "",
        {"answer": 2},
        {"prompt": "again", "messages": [{"role": "user", "content": "x"}], "answer": 1},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}], "answer": 1},
        {"messages": [{"role": "assistant", "content": "x"}], "answer": 1},
        {"prompt": "no answer"},
        {"prompt": "?", "answer": "(", "check": "regex"},
        {"prompt": "?", "answer": "none", "check": "numeric"},
        {"prompt": "?", "answer": 1, "check": "nope"},
        {"prompt": 3, "answer": 1},
        r'{"prompt": "half a pair: \ud800", "answer": 1}',
    ]
    file = tmp_path / "prompts.jsonl"
    read = read_prompts(Path(write(file, *lines)))
    assert [line.prompt for line in read.lines] == ["1 + 1 = ?"]
    assert sorted(read.rejected) == [2, *range(4, 14)]
    assert "text as content" in read.rejected[6]
    assert "no answer" in read.rejected[8]
    assert "no number" in read.rejected[10]
    assert "surrogate" in read.rejected[13]
    [warning] = PromptsEnvironment(str(file)).warnings()
    assert "11 lines are no prompts" in warning


def test_a_prompt_that_was_asked_before_is_left_out_and_said(tmp_path):
    """The second says another answer. One with an identity of its own is another task."""
    asked = {"prompt": "1 + 1 = ?", "answer": 2}
    file = write(tmp_path / "prompts.jsonl", asked, asked | {"answer": 3}, asked | {"prompt": "2?"}, asked | {"identity": "sum"})
    read = read_prompts(Path(file))
    assert ([line.answer for line in read.lines], read.rejected) == ([2, 2, 2], {2: "an earlier line asks the same"})
    assert len(PromptsEnvironment(file).every_item()) == 3


def test_each_prompt_is_on_one_side_whatever_else_is_in_the_file(tmp_path):
    few = PromptsEnvironment(write(tmp_path / "few.jsonl", *questions(100)), check="numeric")
    many = PromptsEnvironment(write(tmp_path / "many.jsonl", *questions(200)), check="numeric")
    for split in ("train", "heldout"):
        first, second = ({item.item_id for item in made.items(split, made.distinct_items(split), 0)} for made in (few, many))
        assert first < second
    assert few.distinct_items("train") + few.distinct_items("heldout") == 100
    assert 15 < few.distinct_items("heldout") < 45


def test_more_items_begin_with_the_fewer_and_a_seed_draws_others(tmp_path):
    made = PromptsEnvironment(write(tmp_path / "a.jsonl", *questions(100)), check="numeric")
    assert made.items("train", 10, 1) == made.items("train", 20, 1)[:10]
    assert made.items("train", 10, 1) != made.items("train", 10, 2)
    assert [item.ordinal for item in made.items("train", 3, 1)] == [0, 1, 2]
    with pytest.raises(DataError, match=r"environment\.train_items"):
        made.items("train", 101, 0)


def test_a_reply_is_verified_against_the_answer_in_the_file(tmp_path):
    line = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1 = ?"}], "answer": 2}
    made = PromptsEnvironment(write(tmp_path / "a.jsonl", *[line | {"identity": f"i{n}"} for n in range(20)]), check="numeric")
    [item] = made.items("train", 1, 0)
    assert [message.role for message in item.messages] == ["system", "user"]
    right, wrong = (made.verify(item, [*item.messages, said(text)]) for text in ("It is 2.", "It is 3."))
    assert (right.value, right.success, wrong.value, wrong.success) == (1.0, True, 0.0, False)
    with pytest.raises(ValueError, match="no answer"):
        made.verify(item, item.messages)


def test_a_check_in_a_file_of_the_users(tmp_path):
    check = tmp_path / "mine.py"
    check.write_text("def longer(reply, answer):\n    return len(reply.content) > answer\n")
    made = PromptsEnvironment(write(tmp_path / "a.jsonl", *questions(9)), check=f"{check}:longer")
    [item] = made.items("train", 1, 0)
    assert made.verify(item, [*item.messages, said("x" * 20)]).success
    assert not made.verify(item, [*item.messages, said("")]).success


def test_another_answer_in_the_file_is_another_key(tmp_path):
    """The path alone would have let a night reuse the scores of the old answers."""
    file = tmp_path / "a.jsonl"

    def key() -> str:
        spec = EnvironmentSpec(name="prompts", options={"file": str(file)})
        return content_key("load", load_environment, {"name": spec})

    write(file, {"prompt": "?", "answer": 1})
    before = key()
    assert key() == before
    write(file, {"prompt": "?", "answer": 2})
    assert key() != before


def test_mistakes_of_the_settings_say_what_to_do(tmp_path):
    with pytest.raises(NotFoundError, match="no such file of prompts"):
        load_environment("prompts", {"file": str(tmp_path / "none.jsonl")})
    with pytest.raises(DataError, match="no line of it"):
        load_environment("prompts", {"file": write(tmp_path / "a.jsonl", "{}")})
    with pytest.raises(ConfigError, match="share"):
        load_environment("prompts", {"file": write(tmp_path / "b.jsonl", *questions(3)), "check": "numeric", "share": 2})


def test_worked_examples_stand_before_every_prompt(tmp_path):
    called = {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    said = [
        {"role": "user", "content": "What is 1 and 2?"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "a", "content": "3"},
        {"role": "assistant", "content": "3"},
    ]
    (tmp_path / "examples.jsonl").write_text(json.dumps({"messages": said}) + "\n\n")
    (tmp_path / "a.jsonl").write_text('{"prompt": "?", "answer": 1}\n')
    environment = PromptsEnvironment(str(tmp_path / "a.jsonl"), system="Be brief.", examples=str(tmp_path / "examples.jsonl"))
    shown = environment.preamble()
    assert [message.role for message in shown] == ["system", "user", "assistant", "tool", "assistant"]
    assert (shown[2].tool_calls[0].name, shown[3].content) == ("add", "3")


@pytest.mark.parametrize(
    "line",
    ["no json", '{"messages": []}', '{"messages": [{"role": "user", "content": "?"}]}', '{"messages": 3}',
     '{"messages": [{"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}]}'],
)  # fmt: skip
def test_an_example_that_is_none_is_refused_with_its_place(tmp_path, line):
    (tmp_path / "examples.jsonl").write_text(f"{line}\n")
    (tmp_path / "a.jsonl").write_text('{"prompt": "?", "answer": 1}\n')
    with pytest.raises(DataError) as refused:
        PromptsEnvironment(str(tmp_path / "a.jsonl"), examples=str(tmp_path / "examples.jsonl"))
    assert refused.value.where.endswith("examples.jsonl:1")


@pytest.mark.parametrize("field", ["image", "images", "image_url"])
def test_a_prompt_that_shows_an_image_is_left_out(tmp_path, field):
    """It was asked without its image."""
    file = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "2 + 2?", "answer": "4"}, {"prompt": "What is on it?", "answer": "a cat", field: ["cat.png"]}]
    file.write_text("\n".join(map(json.dumps, lines)))
    read = read_prompts(file)
    assert [line.prompt for line in read.lines] == ["2 + 2?"]
    assert "text only" in read.rejected[2]
