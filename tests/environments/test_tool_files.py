"""Tools from JSON files and from typed functions."""

import json
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from clawpipe.core.basics.schemas import argument_error, check_parameters
from clawpipe.core.conversation.messages import ToolSpec
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.environments.tool_files import load_tools, tool_of

SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}, "shelves": {"type": "array", "items": {"type": "integer"}}}}


@pytest.fixture
def file(tmp_path):
    """file(entries): the path of a JSON file of them."""
    path = tmp_path / "tools_config.json"

    def write(entries):
        path.write_text(entries if isinstance(entries, str) else json.dumps(entries))
        return path

    return write


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "function", "function": {"name": "stock", "description": "Pieces.", "parameters": SCHEMA, "strict": False}},
        {"name": "stock", "description": "Pieces.", "parameters": SCHEMA},
        {"name": "stock", "title": "Stock", "description": "Pieces.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    ],
)
def test_each_form_of_a_tool_is_read(file, entry):
    assert load_tools(file([entry, {"name": "now"}])) == [ToolSpec("stock", "Pieces.", SCHEMA), ToolSpec("now", "", {})]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ("[", "tools_config.json: the file of tools is no JSON"),
        ({"name": "stock"}, "holds no list"),
        ([{"name": "a"}, 3], r"tools_config.json: \[1\]: a tool is an object"),
        ([{"function": {"name": "a b"}}], r"\[0\]\.function\.name: 'a b'"),
        ([{"description": "a"}], r"\[0\]\.name: None"),
        ([{"name": "a", "description": 3}], r"\[0\]\.description"),
        ([{"name": "a", "parameters": {"item": "string"}}], r"\[0\]\.parameters: type"),
        ([{"name": "a", "inputSchema": {"type": "object", "required": 1}}], r"\[0\]\.inputSchema: required: 1 is not"),
        ([{"name": "a"}, {"name": "b"}, {"name": "a"}], r"\[2\]\.name: there are two tools called 'a'"),
    ],
)
def test_what_is_no_tool_is_refused_by_entry_and_field(file, entries, said):
    with pytest.raises(ConfigError, match=said):
        load_tools(file(entries))


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(NotFoundError, match=r"gone\.json"):
        load_tools(tmp_path / "gone.json")


class Guest(BaseModel):
    name: str
    age: int | None = None


def book(guests: list[Guest], seat: Literal["aisle", "window"] = "aisle", *, nights: Annotated[int, Field(ge=1)] = 1) -> str:
    """Book seats.

    For a whole party.

    Args:
        guests: everybody
            who comes.
        nights: how long.

    Returns:
        The number of the booking.
    """
    return f"{guests} {seat} {nights}"


def test_a_typed_function_becomes_a_tool():
    tool = tool_of(book)
    check_parameters(tool.parameters)
    assert (tool.name, tool.description) == ("book", "Book seats.\n\nFor a whole party.")
    assert tool.parameters["required"] == ["guests"]
    assert tool.arguments["seat"] == {"type": "string", "enum": ["aisle", "window"], "default": "aisle"}
    assert tool.arguments["nights"] == {"type": "integer", "minimum": 1, "default": 1, "description": "how long."}
    assert tool.arguments["guests"]["description"] == "everybody who comes."


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"guests": [{"name": "Ann", "age": None}]}, ""),
        ({"guests": [{"name": "Ann", "age": "old"}]}, "guests.0.age"),
        ({"guests": [], "nights": 0}, "nights: 0 is less than"),
        ({"guests": [], "meal": "none"}, "'meal' was unexpected"),
    ],
)
def test_the_schema_of_a_function_takes_what_the_function_takes(arguments, wrong):
    error = argument_error(tool_of(book).parameters, arguments)
    assert (wrong in error) if wrong else error == ""


def test_a_simple_function_is_a_simple_tool():
    def stock(item: str, model_name: "str") -> int: ...

    assert tool_of(stock).is_flat
    assert list(tool_of(stock).arguments) == ["item", "model_name"]


def test_functions_that_are_no_tools_are_refused():
    def untyped(item): ...
    def unnamed(*items: str): ...
    def unknown(item: "Nowhere"): ...  # noqa: F821  # pyright: ignore
    def untold(item: pytest.MonkeyPatch): ...

    for function, said in ((untyped, "'item' has no type"), (unnamed, "have names"), (unknown, "Nowhere"), (untold, "MonkeyPatch")):
        with pytest.raises(ConfigError, match=said) as caught:
            tool_of(function)
        assert function.__name__ in caught.value.where
