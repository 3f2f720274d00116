"""Grammars of forced calls: whatever they let a policy write, the format's reader reads as calls that fit their schemas."""

import json
import random

import numpy as np
import pytest

from clawpipe.core.basics.schemas import argument_error
from clawpipe.core.conversation.messages import ToolSpec
from clawpipe.model.policy.calls import codec
from clawpipe.model.policy.formats.harmony import MARKERS
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.serve.serving.errors import ApiError
from clawpipe.serve.serving.grammars.matching import Grammars, Held
from clawpipe.serve.serving.grammars.rules import closed

FORMATS = ("hermes", "llama3", "mistral", "pythonic", "qwen3-coder", "harmony")
SIZE = {
    "type": "object",
    "properties": {
        "width": {"type": "integer"},
        "inner": {"anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}]},
        "ok": {"type": "boolean"},
    },
    "required": ["width", "ok"],
}
ORDER = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "description": "what"},
        "kind": {"enum": ["a", "b c", None, 3, True]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        "size": {"$ref": "#/$defs/Size"},
        "flags": {"type": "array", "items": {"type": "boolean"}},
        "counts": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
    "required": ["item", "kind", "tags", "size", "count"],
    "additionalProperties": False,
    "$defs": {"Size": SIZE},
}
ODD = {"type": "object", "properties": {"a-b": {"type": "boolean"}, "class": {"type": "null"}}, "required": ["a-b"]}
TOOLS = [ToolSpec("stock", "", {"item": "string"}), ToolSpec("order", "", ORDER), ToolSpec("now", "", {}), ToolSpec("odd", "", ODD)]


def grammars(format):
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [*map(str, MARKERS), "[TOOL_CALLS]"]})
    return tokenizer, Grammars(tokenizer, format, tokenizer.eos_token_id, len(tokenizer))


def drawn(tokenizer, fitting, draws, most=2500):
    """Return a text of random tokens that the grammar allows; what closes a value is likelier than in a random model."""
    ids, ends = [], {tokenizer.eos_token_id, tokenizer.get_vocab()["<|call|>"]}
    while len(ids) < most:
        bits = np.unpackbits(np.frombuffer(fitting._matcher.compute_bitmask(), np.uint8), bitorder="little")
        allowed = [int(token) for token in np.flatnonzero(bits[: len(tokenizer)])]
        closing = [token for token in allowed if token >= 256 or chr(token) in '"]})>,']
        token = draws.choice(closing if closing and draws.random() < 0.6 else allowed)
        if token in ends:
            return tokenizer.decode(ids, skip_special_tokens=False)
        ids.append(token)
        fitting.accept(token)
    return None  # it did not end in time


@pytest.mark.parametrize("format", FORMATS)
def test_all_that_may_be_drawn_is_a_call_that_fits(format):
    tokenizer, made = grammars(format)
    for tool in TOOLS:
        for seed in range(3):
            text = drawn(tokenizer, made.constraint(Held(tools=[tool])), random.Random(seed))
            if text is None:
                continue
            content, calls = codec(format, TOOLS).parse(text, 0)
            assert content == "", text
            assert calls
            for call in calls:
                assert (call.name, call.malformed) == (tool.name, False), text
                assert argument_error(tool.parameters, json.loads(call.arguments)) == ""


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("hermes", '<tool_call>\n{"name": "order", "arguments": {"item": "mug", "kind": "b c", "count": 7, "tags": ["x", "y"], '
         '"size": {"width": 1, "inner": null, "ok": false}}}\n</tool_call>'),
        ("llama3", '{"name": "stock", "parameters": {"item": "mug"}}; {"name": "now", "parameters": {}}'),
        ("mistral", '[TOOL_CALLS] [{"name": "stock", "arguments": {"item": "mug"}}, {"name": "now", "arguments": {}}]'),
        ("pythonic", 'stock(item="mug")\norder(item="mug", kind=None, count=7, tags=["x", "y"], size={"width": 1, "ok": False}, '
         'flags=[True, False], counts={"a": True})\nnow()'),
        ("pythonic", 'odd(**{"a-b": True, "class": None})'),
        ("qwen3-coder", "<tool_call>\n<function=order>\n<parameter=item>\n<b>\n\n</parameter>\n<parameter=kind>\n3\n</parameter>\n"
         '<parameter=count>\n7\n</parameter>\n<parameter=tags>\n["x"]\n</parameter>\n<parameter=size>\n{"width": 1, "ok": true}\n'
         "</parameter>\n</function>\n</tool_call>"),
        ("harmony", ' to=functions.stock<|channel|>commentary <|constrain|>json<|message|>{"item": "mug"}<|call|>'),
    ],
)  # fmt: skip
def test_what_the_formats_write_may_be_drawn(format, text):
    tokenizer, made = grammars(format)
    matcher = made.constraint(Held(tools=TOOLS))._matcher
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert matcher.try_consume_tokens(ids) == len(ids)
    assert matcher.is_accepting()


@pytest.mark.parametrize("format", FORMATS)
def test_one_call_where_several_are_not_wanted(format):
    tokenizer, made = grammars(format)
    text = drawn(tokenizer, made.constraint(Held(tools=TOOLS[2:3], several=False)), random.Random(1))
    assert len(codec(format, TOOLS).parse(text, 0).calls) == 1


@pytest.mark.parametrize(
    ("format", "schema", "keyword"),
    [
        ("pythonic", {"type": "object", "patternProperties": {"^a": {}}}, "patternProperties"),
        ("pythonic", {"allOf": [{"type": "string"}, {"maxLength": 3}]}, "allOf"),
        ("pythonic", {"type": "array", "uniqueItems": True}, "uniqueItems"),
        ("pythonic", {"type": "string", "format": "colour"}, "format"),
        ("hermes", {"not": {"type": "string"}}, "not"),
        ("hermes", {"type": "array", "contains": {}}, "contains"),
        ("qwen3-coder", {"type": "string", "pattern": "^a$"}, "pattern"),
    ],
)
def test_what_cannot_be_kept_is_named(format, schema, keyword):
    tool = ToolSpec("stock", "", {"type": "object", "properties": {"item": schema}, "required": ["item"]})
    with pytest.raises(ApiError) as refused:
        grammars(format)[1].constraint(Held(tools=[tool]))
    assert (refused.value.status, refused.value.param) == (400, "tool_choice")
    assert keyword in refused.value.message
    assert "\n" not in refused.value.message


def test_json_or_a_call_where_both_are_asked_for():
    tokenizer, made = grammars("hermes")
    held = Held({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, TOOLS[2:3])
    for text, fits in (('{"a": 1}', True), ('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', True), ("Hello", False)):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert (made.constraint(held)._matcher.try_consume_tokens(ids) == len(ids)) is fits


def test_objects_have_the_properties_that_they_name():
    inner = {"type": "object", "properties": {"b": {}}}
    shut = inner | {"additionalProperties": False}
    assert closed({"type": "object", "properties": {"a": inner}, "$defs": {"I": inner}}) == {
        "type": "object",
        "properties": {"a": shut},
        "$defs": {"I": shut},
        "additionalProperties": False,
    }
    for left in ({"type": "object"}, inner | {"additionalProperties": True}, {"allOf": [inner, inner]}, {"enum": [inner]}):
        assert closed(left) == left
