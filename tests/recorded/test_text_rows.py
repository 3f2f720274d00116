"""Stored text is rendered into tokens to imitate."""

from __future__ import annotations

import json
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.config.night import EnvironmentConfig
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message, ToolCall, WrittenFormat
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.model.policy.base import RANDOM, resolve_base
from clawpipe.model.policy.calls import codec
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.text import main_only, parse_tools, render_row
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.model.policy.version import base_ref
from clawpipe.play.recorded.text_rows import render_text

KEYS = ["type", "properties", "required", "a", "$ref", "anyOf", "enum", "allOf", "additionalProperties", "items"]
TOOL = {
    "type": "function",
    "function": {"name": "stock", "description": "d", "parameters": {"properties": {"item": {"type": "string"}}}},
}
TALK = (Message("user", "q"), Message("assistant", "one"), Message("user", "r"), Message("assistant", "two"))


def row(*messages: Message, **fields) -> dict:
    facts = {
        "trajectory_id": "t",
        "item_id": "i",
        "group_id": "i/",
        "rollout_index": 0,
        "environment": "imported",
        "split": "train",
    }
    facts |= {"source": "imported", "prompt_tokens": 0, "temperature": 0.0, "seed": 0, "finish_reason": "stop", "tokens": "none"}
    facts |= {name: [] for name in ("token_ids", "loss_mask", "logprobs", "turns")} | {"kinds": None, "tools": None}
    return facts | {"messages": [message.as_dict() for message in messages]} | fields


def renderer_of(tools: str | None) -> Renderer:
    return Renderer(byte_tokenizer(), "pythonic", parse_tools(tools) if tools else ())


def learnt(ids: list[int], mask: list[bool]) -> str:
    return byte_tokenizer().decode([token for token, kept in zip(ids, mask, strict=True) if kept])


def test_main_turns_alone_are_learnt_from():
    rendered, _ = render_row(row(*TALK, kinds=["side", "main"]), renderer_of, ())
    assert learnt(*rendered) == "two<|im_end|>"


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        ({"status": "completed"}, "one<|im_end|>two<|im_end|>"),
        ({"status": "truncated", "finish_reason": "length"}, "one<|im_end|>two"),
        ({"status": "aborted"}, "one<|im_end|>two"),
        ({"source": "rollout", "finish_reason": "length"}, "one<|im_end|>two"),
        ({"source": "rollout", "finish_reason": "max_turns"}, "one<|im_end|>two<|im_end|>"),
    ],
)
def test_an_answer_that_was_cut_off_has_no_end(ended, text):
    """An end marker after half a sentence teaches to stop there."""
    (ids, mask), _ = render_row(row(*TALK, **ended), renderer_of, ())
    assert learnt(ids, mask) == text
    assert byte_tokenizer().decode(ids).rstrip().endswith(text[len("one<|im_end|>") :])


def test_an_end_before_the_last_message_is_another_ones():
    (ids, mask), _ = render_row(row(*TALK, Message("user", "s"), status="truncated"), renderer_of, ())
    assert learnt(ids, mask) == "one<|im_end|>two<|im_end|>"


def test_a_preamble_precedes_bare_conversations_untrained():
    preamble = (Message("system", "be kind"), Message("user", "x"), Message("assistant", "y"))
    (ids, mask), _ = render_row(row(*TALK), renderer_of, preamble)
    assert "be kind" in byte_tokenizer().decode(ids)
    assert learnt(ids, mask) == "one<|im_end|>two<|im_end|>"


@pytest.mark.parametrize("own", [{"tools": json.dumps([TOOL])}, {}])
def test_a_conversation_with_a_context_of_its_own_keeps_it(own):
    before = () if own else (Message("system", "mine"),)
    (ids, _), _ = render_row(row(*before, *TALK, **own), renderer_of, (Message("system", "be kind"),))
    text = byte_tokenizer().decode(ids)
    assert "be kind" not in text
    assert ("stock(item)" if own else "mine") in text


def test_a_call_that_cannot_be_written_is_told():
    call = ToolCall("c", "not a name(", "{}")
    assert render_row(row(Message("user", "q"), Message("assistant", "", (call,))), renderer_of, ()) == "calls cannot be written"


def test_a_mask_has_one_run_a_turn():
    mask = [False, True, True, False, True, False]
    assert main_only(mask, ["main", "side"]) == [False, True, True, False, False, False]


def test_tools_keep_their_nested_and_optional_arguments():
    guests = {"type": "array", "items": {"type": "object", "properties": {"age": {"type": ["integer", "null"]}}}}
    parameters = {"type": "object", "properties": {"guests": guests, "seat": {"enum": ["aisle", "window"]}}, "required": ["guests"]}
    for entry in ({"name": "book", "parameters": parameters}, {"name": "book", "inputSchema": parameters}):
        [tool] = parse_tools(json.dumps([entry]))
        assert tool.parameters == parameters
    (ids, _), _ = render_row(row(*TALK, tools=json.dumps([entry])), renderer_of, ())
    assert json.dumps(parameters) in byte_tokenizer().decode(ids)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["string", "object", "a", "#/a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, json_values)
def test_every_format_describes_tools_with_any_json_schema(parameters, argument):
    nested = {"type": "object", "properties": {"a": argument}, "required": ["a"]}
    entries = [{"name": "one", "parameters": parameters}, {"name": "two", "parameters": nested}]
    found = parse_tools(json.dumps(entries))
    assert [tool.name for tool in found] == ["one", "two"]
    for format in get_args(WrittenFormat):
        own = codec(format, found)
        assert "two" in own.describe()
        own.write(Message("assistant", "", (ToolCall("c", "two", '{"a": [1]}'),)))


def test_tools_that_are_no_schema_are_left_out():
    assert parse_tools('{"a": 1}') == parse_tools('[1, {"function": {"name": 3}}]') == []


def test_recorded_rows_keep_their_tokens_and_text_gets_some(tmp_path):
    store, policy = Store(tmp_path), base_ref(RANDOM, resolve_base(RANDOM).digest, "pythonic", "float32", "none")
    recorded = {
        "tokens": "recorded",
        "token_ids": [1, 2],
        "loss_mask": [False, True],
        "logprobs": [0.0, -1.0],
        "trajectory_id": "u",
    }
    table = pa.Table.from_pylist([row(*TALK), row(*TALK, **recorded)], schema_of("trajectories"))
    # a dataset of an earlier minor version lacks the columns that are filled
    old = table.drop_columns(["rendered_ids", "rendered_mask", "tools", "kinds"])
    ref = publish_dataset(store, "trajectories", [old])
    done = render_text(store, ref, policy, EnvironmentConfig(name="letters"))
    text, tokens = read_dataset(store, done.dataset).to_pylist()
    assert learnt(text["rendered_ids"], text["rendered_mask"]) == "one<|im_end|>two<|im_end|>"
    assert (tokens["token_ids"], tokens["rendered_ids"]) == ([1, 2], None)
    assert text["renderer_digest"]
    assert not done.details["not_rendered"]


def test_a_dataset_without_text_stays_what_it_is(tmp_path):
    store, policy = Store(tmp_path), base_ref(RANDOM, "0" * 64, "pythonic", "float32", "none")
    table = pa.Table.from_pylist([row(*TALK, tokens="recorded")], schema_of("trajectories"))
    ref = publish_dataset(store, "trajectories", [table])
    assert render_text(store, ref, policy, EnvironmentConfig(name="letters")).dataset == ref
