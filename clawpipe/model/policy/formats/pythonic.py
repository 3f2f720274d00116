"""Calls in Python's syntax, which is parsed and never evaluated."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from keyword import iskeyword
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.syntax import parse_expression
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.data.wire.arguments import arguments_of, neutral_arguments
from clawpipe.data.wire.thoughts import Found, content_end, split_calls
from clawpipe.errors import DataError
from clawpipe.model.policy.formats.common import MAX_CHARACTERS, Parsed, Pieces, joined, written_json

_DOTTED_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"


class Pythonic:
    """One call per line: `stock(item="iron kettle")`. The shortest format: 7 to 13 tokens in a small vocabulary."""

    markers = ()
    _CALL = re.compile(rf"({_DOTTED_NAME})\(")

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._orders = {tool.name: tuple(tool.arguments) for tool in tools}
        self._schemas = [f"Arguments of {tool.name}: {written_json(tool.parameters)}" for tool in tools if not tool.is_flat]
        self._openings = tuple(f"{tool.name}(" for tool in tools)

    def describe(self) -> str:
        """Return the signatures; where names do not say what the arguments may be, the JSON Schema follows."""
        signatures = ", ".join(f"{name}({', '.join(order)})" for name, order in self._orders.items())
        return "\n".join([f"Tools: {signatures}", *self._schemas]) if signatures else ""

    def write(self, message: Message) -> Pieces:
        return [joined(message.content, [self._line(call) for call in message.tool_calls])]

    def result(self, message: Message) -> Pieces:
        return [message.content]

    def content_end(self, text: str) -> int:
        return content_end(text, self._opening)

    def _opening(self, text: str) -> int:
        """Return where the first line starts that is a call, or, if it is the last, may become one."""
        start = 0
        *lines, last = text.split("\n")
        for line in lines:
            if line.lstrip().startswith(self._openings):
                return start
            start += len(line) + 1
        begun = last.lstrip()
        may_be = begun.startswith(self._openings) or any(opening.startswith(begun) for opening in self._openings)
        return start if may_be else len(text)

    def parse(self, text: str, turn: int) -> Parsed:
        content, lines = split_calls(text, self._line_from)
        calls = tuple(self._call(f"call_{turn}_{index}", self._name_in(line), line) for index, line in enumerate(lines))
        return Parsed(content.strip(), calls)

    def _line_from(self, text: str, place: int) -> Found | None:
        """Return the first line from `place` on that is a call, with its line break."""
        start = place if text[place - 1 : place] in ("", "\n") else text.find("\n", place) + 1 or len(text)
        while start < len(text):
            end = text.find("\n", start) + 1 or len(text)
            line = text[start:end].strip()
            if self._name_in(line):
                return Found(start, end, (line,))
            start = end
        return None

    def _name_in(self, line: str) -> str:
        """Return the name of the tool that a line calls; "" if it is no call."""
        match = self._CALL.match(line)
        return match[1] if match and (match[1] in self._orders or line.endswith(")")) else ""

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
        if call.malformed:  # as it was written; arguments that an API gave alone get their name
            return call.arguments if call.name in call.arguments else f"{call.name}({call.arguments})"
        if not _is_dotted_name(call.name):
            raise DataError(f"{call.name!r} cannot be written as a pythonic call", call.id, "set model.tool_call_format to hermes")
        arguments = arguments_of(call)
        if all(_is_dotted_name(key) and "." not in key for key in arguments):
            return f"{call.name}({', '.join(f'{key}={_written(value)}' for key, value in arguments.items())})"
        return f"{call.name}(**{arguments!r})"


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError("not a literal") from None


def _is_dotted_name(text: str) -> bool:
    """Return whether Python reads `text` as a name and keeps its spelling: it rejects keywords, and normalises some letters."""
    try:
        is_name = re.fullmatch(_DOTTED_NAME, text) and not any(map(iskeyword, text.split(".")))  # None() is an expression
        return bool(is_name) and ast.unparse(parse_expression(f"{text}()", MAX_CHARACTERS)) == f"{text}()"
    except ValueError:
        return False


def _written(value: Any) -> str:
    return written_json(value) if isinstance(value, str) else repr(value)
