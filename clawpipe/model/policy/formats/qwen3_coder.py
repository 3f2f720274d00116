"""Calls as tags with plain text between them: as Qwen3-Coder and Qwen3.5 models write them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.schemas import type_of, types_of
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.data.wire.arguments import arguments_of, neutral_arguments
from clawpipe.data.wire.spelled import storable
from clawpipe.data.wire.thoughts import Found, content_end, split_calls
from clawpipe.errors import DataError
from clawpipe.model.policy.formats.common import (
    MAX_CHARACTERS,
    Parsed,
    Pieces,
    before,
    joined,
    written_json,
)

_NAME = r"[^<>\n]+"
_CLOSING = re.compile(r"<(\\*)/(parameter|function|tool_call)>")
_ESCAPED = re.compile(r"<\\(\\*)/(parameter|function|tool_call)>")
_PYTHONS = {"True": "true", "False": "false", "None": "null"}  # how the models' own templates write these values
_TEXT = frozenset({"string"})


class Qwen3Coder:
    r"""`<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>`, each tag and value on a line.

    A value is plain text, whose type the tool's schema decides: text where it allows only a string or does not know the argument;
    else JSON where it is JSON of a type that the schema allows. A closing tag within a value gets a backslash: `<\/parameter>`.
    """

    markers = ()
    _BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
    _FUNCTION = re.compile(rf"<function=({_NAME})>(.*)</function>", re.DOTALL)
    _PARAMETER = re.compile(rf"<parameter=({_NAME})>(.*?)</parameter>", re.DOTALL)

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)
        self._types = {
            (tool.name, name): types_of(schema, tool.parameters) for tool in tools for name, schema in tool.arguments.items()
        }

    def describe(self) -> str:
        if not self._tools:
            return ""
        schemas = "\n".join(written_json(tool.as_function()) for tool in self._tools)
        return (
            f"You may call these functions:\n<tools>\n{schemas}\n</tools>\n"
            "For each call write its function, and each argument's value between tags of its name:\n"
            "<tool_call>\n<function=function-name>\n<parameter=argument-name>\nvalue\n</parameter>\n</function>\n</tool_call>"
        )

    def write(self, message: Message) -> Pieces:
        return [joined(message.content, [self._block(call) for call in message.tool_calls], gap="\n\n")]

    def result(self, message: Message) -> Pieces:
        return [f"<tool_response>\n{message.content}\n</tool_response>"]

    def content_end(self, text: str) -> int:
        return content_end(text, lambda rest: before(rest, "<tool_call>"))

    def parse(self, text: str, turn: int) -> Parsed:
        content, bodies = split_calls(text, self._block_from)
        calls = tuple(self._call(f"call_{turn}_{index}", body) for index, body in enumerate(bodies))
        return Parsed(content.strip(), calls)

    def _block_from(self, text: str, place: int) -> Found | None:
        found = self._BLOCK.search(text, place)
        return Found(found.start(), found.end(), (found[1].strip(),)) if found else None

    def _call(self, call_id: str, body: str) -> ToolCall:
        match = self._FUNCTION.fullmatch(body[:MAX_CHARACTERS])
        name = storable(match[1]) if match else ""
        try:
            if not match or not name or len(body) > MAX_CHARACTERS or self._PARAMETER.sub("", match[2]).strip():
                raise ValueError("not one function of parameters")
            return ToolCall(call_id, name, neutral_arguments(self._arguments(name, match[2])))
        except ValueError:
            return ToolCall(call_id, name, body, malformed=True)

    def _arguments(self, function: str, text: str) -> JsonObject:
        arguments: JsonObject = {}
        for key, value in self._PARAMETER.findall(text):
            if key in arguments:
                raise ValueError("an argument is given twice")
            plain = _ESCAPED.sub(r"<\1/\2>", value.removeprefix("\n").removesuffix("\n"))
            arguments[key] = _read(plain, self._types.get((function, key), _TEXT))
        return arguments

    def _block(self, call: ToolCall) -> str:
        body = self._as_it_was(call) if call.malformed else self._written(call)
        return f"<tool_call>\n{body}\n</tool_call>"

    def _as_it_was(self, call: ToolCall) -> str:
        """Return a malformed call as it was written; arguments that an API gave alone get their name."""
        body = call.arguments.replace("</tool_call>", r"<\/tool_call>")
        return body if call.name in body else f"<function={call.name}>\n{body}\n</function>"

    def _written(self, call: ToolCall) -> str:
        arguments = arguments_of(call)
        for name in (call.name, *arguments):
            if not re.fullmatch(_NAME, name):
                raise DataError(f"{name!r} cannot be written in a tag", call.id, "set model.tool_call_format to hermes")
        parameters = [self._parameter(call.name, key, value) for key, value in arguments.items()]
        return "\n".join([f"<function={call.name}>", *parameters, "</function>"])

    def _parameter(self, function: str, key: str, value: Any) -> str:
        is_plain = isinstance(value, str) and _read(value, self._types.get((function, key), _TEXT)) == value
        text = _CLOSING.sub(r"<\\\1/\2>", value if is_plain else written_json(value))
        return f"<parameter={key}>\n{text}\n</parameter>"


def _read(text: str, types: frozenset[str]) -> Any:
    """Return the value of a text: the text itself unless `types` allow another one, and it is JSON of an allowed type."""
    if types <= _TEXT:
        return text
    try:
        value = json.loads(_PYTHONS.get(text, text), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text
    return value if type_of(value) in types or "string" not in types else text


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
