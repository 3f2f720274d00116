"""Tools with JSON Schemas: the short form, what is shown to a policy, and checks that fetch nothing."""

import json
import socket

import pytest

from clawpipe.core.basics.schemas import TYPES, argument_error, check_parameters, types_of
from clawpipe.core.conversation.messages import ToolSpec
from clawpipe.model.policy.calls import codec

BOOK = {
    "type": "object",
    "properties": {
        "guests": {"type": "array", "items": {"$ref": "#/$defs/Guest"}, "minItems": 1},
        "seat": {"enum": ["aisle", "window"], "default": "aisle"},
        "when": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
    },
    "required": ["guests"],
    "additionalProperties": False,
    "$defs": {"Guest": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
}


def test_the_short_form_is_the_schema_that_it_stands_for():
    schema = {"required": ["what", "to"], "properties": {"to": {"type": "number"}, "what": {"type": "string"}}, "type": "object"}
    short = ToolSpec("move", "Move it.", {"to": "number", "what": "string"})
    assert short == ToolSpec("move", "Move it.", schema)
    assert json.dumps(short.parameters) == json.dumps(ToolSpec("move", "Move it.", schema).parameters)
    for empty in ({"type": "object"}, {"type": "object", "properties": {}}):
        assert ToolSpec("now", "", {}) == ToolSpec("now", "", empty)


@pytest.mark.parametrize("parameters", [{"type": "string", "properties": "string"}, {"required": "array"}])
def test_arguments_may_be_called_like_a_schemas_keys(parameters):
    assert list(ToolSpec("t", "", parameters).arguments) == list(parameters)


def test_simple_tools_are_shown_as_they_always_were():
    tools = [ToolSpec("stock", "Pieces in stock.", {"item": "string"}), ToolSpec("move", "", {"what": "string", "to": "number"})]
    assert codec("pythonic", tools).describe() == "Tools: stock(item), move(what, to)"
    assert codec("hermes", tools).describe() == (
        "You may call one or more functions. Their signatures are within <tools></tools> tags:\n<tools>\n"
        '{"type": "function", "function": {"name": "stock", "description": "Pieces in stock.", "parameters": '
        '{"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}}}\n'
        '{"type": "function", "function": {"name": "move", "description": "", "parameters": '
        '{"type": "object", "properties": {"what": {"type": "string"}, "to": {"type": "number"}}, "required": ["what", "to"]}}}\n'
        "</tools>\n"
        "For each call return a JSON object with the function's name and arguments within <tool_call></tool_call> tags:\n"
        '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )


@pytest.mark.parametrize("format", ["pythonic", "hermes"])
def test_a_nested_schema_is_shown_whole(format):
    assert json.dumps(BOOK) in codec(format, [ToolSpec("book", "Book seats.", BOOK)]).describe()


def test_notes_on_arguments_leave_a_pythonic_signature_as_it_is():
    schema = {"type": "object", "properties": {"item": {"type": "string", "description": "what"}}, "required": ["item"]}
    noted = ToolSpec("stock", "", schema | {"additionalProperties": False, "title": "Stock"})
    assert codec("pythonic", [noted]).describe() == "Tools: stock(item)"
    assert '"description": "what"' in codec("hermes", [noted]).describe()


@pytest.mark.parametrize(
    "change", [{"required": []}, {"properties": {"item": {"type": ["string", "null"]}}}, {"properties": {"item": {"enum": [1]}}}]
)
def test_what_a_signature_cannot_say_follows_as_schema(change):
    schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]} | change
    described = codec("pythonic", [ToolSpec("stock", "", schema)]).describe()
    assert described == f"Tools: stock(item)\nArguments of stock: {json.dumps(schema)}"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ([], 'the type "object"'),
        ({"type": "string"}, 'the type "object"'),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, r"properties\.a\.type: 'strin'"),
        ({"type": "object", "required": "a"}, "required: 'a' is not of type 'array'"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, r"properties\.a\.pattern"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}, "example.org"),
        ({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}, "passwd"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/Gone"}}}, "Gone"),
    ],
)
def test_an_invalid_schema_is_refused_by_its_field(parameters, said, monkeypatch):
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("a connection"))
    with pytest.raises(ValueError, match=said):
        check_parameters(parameters)


def test_a_schema_nested_too_deeply_is_refused():
    schema = {"type": "string"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ValueError, match="too deeply"):
        check_parameters(schema)


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"guests": [{"name": "Ann"}]}, ""),
        ({"guests": [{"name": "Ann"}], "when": None, "seat": "window"}, ""),
        ({}, "'guests' is a required property"),
        ({"guests": [{"name": 3}]}, "guests.0.name: 3 is not of type 'string'"),
        ({"guests": [{"name": "Ann"}], "seat": "roof"}, "seat: 'roof' is not one of ['aisle', 'window']"),
        ({"guests": []}, "guests: [] should be non-empty"),
        ({"guests": [{"name": "Ann"}], "meal": 1}, "Additional properties are not allowed ('meal' was unexpected)"),
    ],
)
def test_arguments_are_checked_by_the_schema(arguments, wrong):
    check_parameters(BOOK)
    assert argument_error(BOOK, arguments) == wrong


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": "number"}, {"number", "integer"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"enum": ["a", 1, True]}, {"string", "integer", "boolean"}),
        ({"const": None}, {"null"}),
        (BOOK["properties"]["when"], {"string", "integer", "null"}),
        ({"oneOf": [{"$ref": "#/$defs/Guest"}, {"type": "boolean"}]}, {"object", "boolean"}),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}]}, {"integer"}),
        ({"description": "anything"}, TYPES),
        (True, TYPES),
        ({"type": 3}, TYPES),
        ({"$ref": "#/$defs/Gone"}, TYPES),
    ],
)
def test_the_types_that_a_schema_allows(schema, types):
    assert types_of(schema, BOOK) == types


def test_references_that_go_round_end():
    root = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "string"}]}}}
    assert "string" in types_of({"$ref": "#/$defs/A"}, root)
