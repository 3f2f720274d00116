"""Load tools from a JSON file (OpenAI's form, bare functions, or MCP's form), or from typed Python functions.

[{"type": "function", "function": {"name": "stock", "description": "...", "parameters": {...}}},    OpenAI
 {"name": "stock", "description": "...", "parameters": {...}},                                      a bare function
 {"name": "stock", "description": "...", "inputSchema": {...}}]                                     MCP
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import griffe
from griffe import DocstringSectionKind
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.schemas import check_parameters
from clawpipe.core.conversation.messages import TOOL_NAME, ToolSpec
from clawpipe.errors import ConfigError, NotFoundError

_PARAMETERS = ("parameters", "inputSchema", "input_schema")  # OpenAI's name, MCP's, Anthropic's
_NO_ARGUMENTS = {"type": "object", "properties": {}}


def load_tools(path: str | Path) -> list[ToolSpec]:
    """Return the tools of a JSON file, in its order.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it holds something else than a list of tools, or two of one name; the message names entry and field.
    """
    tools: list[ToolSpec] = []
    for index, entry in enumerate(_listed(Path(path))):
        tool = _tool(entry, f"{path}: [{index}]")
        if any(tool.name == other.name for other in tools):
            raise ConfigError(f"there are two tools called {tool.name!r}", f"{path}: [{index}].name", "give each a name of its own")
        tools.append(tool)
    return tools


def tool_of(function: Callable[..., Any]) -> ToolSpec:
    """Return a function's tool: its name, its docstring, and the schema of its typed arguments, as pydantic makes it.

    The text of the docstring is the tool's description; an "Args:" section in Google's style describes arguments.

    Raises:
        ConfigError: an argument has no type, or one that has no JSON Schema, or is *args, **kwargs or positional only.
    """
    where = f"{function.__module__}.{function.__qualname__}"
    _check_signature(function, where)
    try:
        arguments: TypeAdapter[Any] = TypeAdapter(cast(Any, function))  # pydantic takes functions, its type does not say so
        schema = arguments.json_schema(schema_generator=_Untitled)
    except (PydanticUserError, NameError) as error:
        raise ConfigError(f"the types of its arguments have no JSON Schema: {error}", where, "use types that JSON has") from None
    text, described = documented(function)
    for name, description in described.items():
        if name in schema["properties"]:
            schema["properties"][name] = {"description": description} | schema["properties"][name]
    return ToolSpec(function.__name__, text, schema)


class _Untitled(GenerateJsonSchema):
    """Pydantic's schemas without a title for each field, which would be its name again."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _listed(path: Path) -> list[Any]:
    try:
        listed = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise NotFoundError("there is no such file of tools", str(path)) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the file of tools is no JSON: {error}", str(path)) from None
    if not isinstance(listed, list):
        raise ConfigError("the file of tools holds no list", str(path), "write [{...}, {...}], one object per tool")
    return listed


def _tool(entry: Any, where: str) -> ToolSpec:
    if isinstance(entry, dict) and not isinstance(entry.get("function", ""), str):  # a text says where a local function is
        entry, where = entry["function"], f"{where}.function"
    if not isinstance(entry, dict):
        raise ConfigError("a tool is an object", where, 'write {"name": ..., "description": ..., "parameters": {...}}')
    name, description = entry.get("name"), entry.get("description") or ""
    if not isinstance(name, str) or not re.fullmatch(TOOL_NAME, name):
        raise ConfigError(f"{name!r} is no name of a tool", f"{where}.name", "use up to 128 letters, digits and _ . -")
    if not isinstance(description, str):
        raise ConfigError("a description is text", f"{where}.description")
    return ToolSpec(name, description, _parameters(entry, where))


def _parameters(entry: JsonObject, where: str) -> JsonObject:
    field = next((name for name in _PARAMETERS if name in entry), None)
    if field is None or entry[field] is None:
        return _NO_ARGUMENTS
    try:
        check_parameters(entry[field])
    except ValueError as error:
        raise ConfigError(str(error), f"{where}.{field}", "write a JSON Schema of an object") from None
    return entry[field]


def _check_signature(function: Callable[..., Any], where: str) -> None:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"a tool's arguments have names, but {parameter} has none", where)
        if parameter.annotation is parameter.empty:
            raise ConfigError(f"the argument {parameter.name!r} has no type", where, f"write {parameter.name}: str, or what it is")


def documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return a docstring's text, and what it says of each argument."""
    sections = griffe.Docstring(inspect.getdoc(function) or "", parser="google").parse(warnings=False)
    texts = [section.value for section in sections if section.kind is DocstringSectionKind.text]
    arguments = [part for section in sections if section.kind is DocstringSectionKind.parameters for part in section.value]
    return "\n\n".join(texts), {argument.name: " ".join(argument.description.split()) for argument in arguments}
