"""Tool-call formats: codecs between a policy's text and neutral tool calls, one per format. Nothing is ever evaluated.

`write` and `parse` are inverses on neutral calls. Text that looks like a call but cannot be parsed is kept: a ToolCall with
`malformed` set and the raw text in `arguments`, which `write` returns unchanged.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

from clawpipe.errors import DataError
from clawpipe.expressions import parse_expression
from clawpipe.json_types import JsonObject
from clawpipe.messages import Message, ToolCall, ToolSpec

ToolCallFormat = Literal["pythonic", "hermes"]
MAX_CHARACTERS = 8192  # per call; longer calls are malformed
_DOTTED_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"


class Parsed(NamedTuple):
    """The text of an assistant message without its calls, and the calls in order."""

    content: str
    calls: tuple[ToolCall, ...]


class Codec(Protocol):
    def describe(self) -> str:
        """Return the system message's description of the tools; empty without tools."""
        ...

    def write(self, message: Message) -> str:
        """Return the text of an assistant message: its content, then its calls."""
        ...

    def result(self, message: Message) -> str:
        """Return the text of a tool message."""
        ...

    def parse(self, text: str, turn: int) -> Parsed:
        """Parse text, as the inverse of `write`; never raises. The k-th call of the turn gets the id `call_{turn}_{k}`."""
        ...


def codec(format: ToolCallFormat, tools: Sequence[ToolSpec]) -> Codec:
    return Pythonic(tools) if format == "pythonic" else Hermes(tools)


class Pythonic:
    """One call per line: `stock(item="iron kettle")`. The shortest format: 7 to 13 tokens in a small vocabulary."""

    _CALL = re.compile(rf"({_DOTTED_NAME})\(")

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._orders = {tool.name: tuple(tool.arguments) for tool in tools}
        self._schemas = [f"Arguments of {tool.name}: {_json(tool.parameters)}" for tool in tools if not tool.is_flat]

    def describe(self) -> str:
        """Return the signatures; where names do not say what the arguments may be, the JSON Schema follows."""
        signatures = ", ".join(f"{name}({', '.join(order)})" for name, order in self._orders.items())
        return "\n".join([f"Tools: {signatures}", *self._schemas]) if signatures else ""

    def write(self, message: Message) -> str:
        return _joined(message.content, [self._line(call) for call in message.tool_calls])

    def result(self, message: Message) -> str:
        return message.content

    def parse(self, text: str, turn: int) -> Parsed:
        content: list[str] = []
        calls: list[ToolCall] = []
        for line in text.split("\n"):
            match = self._CALL.match(line.strip())
            if match and (match[1] in self._orders or line.rstrip().endswith(")")):
                calls.append(self._call(f"call_{turn}_{len(calls)}", match[1], line.strip()))
            else:
                content.append(line)
        return Parsed("\n".join(content).strip(), tuple(calls))

    def _call(self, call_id: str, name: str, line: str) -> ToolCall:
        try:
            node = parse_expression(line, MAX_CHARACTERS)
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != name:
                raise ValueError("not one call")
            return ToolCall(call_id, name, neutral_arguments(self._arguments(name, node)))
        except ValueError:
            return ToolCall(call_id, name, line, malformed=True)

    def _arguments(self, name: str, node: ast.Call) -> JsonObject:
        order = self._orders.get(name, ())
        if len(node.args) > len(order):
            raise ValueError("more positional arguments than the tool has")
        values = {key: _literal(value) for key, value in zip(order, node.args, strict=False)}
        for keyword in node.keywords:
            value = _literal(keyword.value)
            added = value if keyword.arg is None else {keyword.arg: value}  # None: `**{...}`
            if not isinstance(added, dict) or values.keys() & added.keys():
                raise ValueError("an argument is given twice, or is no mapping")
            values |= added
        return values

    def _line(self, call: ToolCall) -> str:
        if call.malformed:
            return call.arguments
        if not _is_dotted_name(call.name):
            raise DataError(f"{call.name!r} cannot be written as a pythonic call", call.id, "set model.tool_call_format to hermes")
        arguments = json.loads(call.arguments)
        if all(_is_dotted_name(key) and "." not in key for key in arguments):
            return f"{call.name}({', '.join(f'{key}={_written(value)}' for key, value in arguments.items())})"
        return f"{call.name}(**{arguments!r})"


class Hermes:
    """A JSON object between `<tool_call>` tags, the format that most open models with tools were trained on."""

    _BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)

    def describe(self) -> str:
        if not self._tools:
            return ""
        schemas = "\n".join(_json(tool.as_function()) for tool in self._tools)
        return (
            "You may call one or more functions. Their signatures are within <tools></tools> tags:\n"
            f"<tools>\n{schemas}\n</tools>\n"
            "For each call return a JSON object with the function's name and arguments within <tool_call></tool_call> tags:\n"
            '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
        )

    def write(self, message: Message) -> str:
        return _joined(message.content, [self._block(call) for call in message.tool_calls])

    def result(self, message: Message) -> str:
        return f"<tool_response>\n{message.content}\n</tool_response>"

    def parse(self, text: str, turn: int) -> Parsed:
        bodies = [match[1].strip() for match in self._BLOCK.finditer(text)]
        calls = tuple(self._call(f"call_{turn}_{index}", body) for index, body in enumerate(bodies))
        return Parsed(self._BLOCK.sub("", text).strip(), calls)

    def _call(self, call_id: str, body: str) -> ToolCall:
        name = ""
        try:
            value = _json_object(body)
            name = _storable(value.get("name"))
            if not name or not isinstance(value.get("arguments"), dict):
                raise ValueError("a call has a name and an object of arguments")
            return ToolCall(call_id, name, neutral_arguments(value["arguments"]))
        except ValueError:
            return ToolCall(call_id, name, body, malformed=True)

    def _block(self, call: ToolCall) -> str:
        body = call.arguments if call.malformed else f'{{"name": {_quoted(call.name)}, "arguments": {call.arguments}}}'
        safe = body.replace("</tool_call>", r"<\/tool_call>")  # the same JSON, without ending the block
        return f"<tool_call>\n{safe}\n</tool_call>"


def neutral_arguments(arguments: JsonObject) -> str:
    """Return a JSON object with sorted keys.

    Raises:
        ValueError: JSON or UTF-8 cannot express a value (NaN, an infinity, bytes, half a surrogate pair), or nesting is too deep.
    """
    try:
        text = json.dumps(arguments, sort_keys=True, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise ValueError("not expressible in JSON") from None
    return text


def _joined(content: str, calls: list[str]) -> str:
    return "\n".join([content, *calls] if content else calls)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError("not a literal") from None


def _json_object(text: str) -> JsonObject:
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"longer than {MAX_CHARACTERS} characters")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _storable(name: Any) -> str:
    """Return the name; "" if it is no string, or has control characters or half a surrogate pair, which UTF-8 cannot express."""
    return name if isinstance(name, str) and name.isprintable() else ""


def _is_dotted_name(text: str) -> bool:
    """Return whether Python reads `text` as a name and keeps its spelling: it rejects keywords, and normalises some letters."""
    try:
        return bool(re.fullmatch(_DOTTED_NAME, text)) and ast.unparse(parse_expression(f"{text}()", MAX_CHARACTERS)) == f"{text}()"
    except ValueError:
        return False


def _written(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """Return a string literal on one line that is valid in JSON and in Python."""
    return _json(text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
