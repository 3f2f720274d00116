"""Calls as messages to a function: harmony, which gpt-oss models write (https://github.com/openai/harmony, docs/format.md).

A turn is one or several messages, each on a channel: what the model thinks is `analysis`, an answer `final`, what it says before a
call and the call itself `commentary`. The neutral form of a thought is `<think>...</think>` at the beginning of the content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.schemas import resolved
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.data.wire.arguments import arguments_of, neutral_arguments, tool_call
from clawpipe.data.wire.spelled import storable
from clawpipe.data.wire.thoughts import CLOSING, OPENING, open_thought, split_thought
from clawpipe.errors import DataError
from clawpipe.model.policy.formats.common import MAX_CHARACTERS, Marker, Parsed, Pieces, written_json

START, END, MESSAGE, CHANNEL = Marker("<|start|>"), Marker("<|end|>"), Marker("<|message|>"), Marker("<|channel|>")
CONSTRAIN, CALL, RETURN = Marker("<|constrain|>"), Marker("<|call|>"), Marker("<|return|>")
MARKERS = (START, END, MESSAGE, CHANNEL, CONSTRAIN, CALL, RETURN)
NAMESPACE = "functions."

_NAME = re.compile(r"[^\s<>]+")
_MARKER = re.compile(r"<\|(start|end|message|channel|constrain|call|return)\|>")
_NEXT = re.compile(r"(?:<\|(?:end|call|return)\|>)?<\|start\|>assistant|<\|(?:end|call|return)\|>\Z")
_RECIPIENT = re.compile(r"\bto=([^\s<]*)")
_ANALYSIS = re.compile(r"<\|channel\|>\s*analysis\b")
_BRACES = re.compile(r"\{.*\}", re.DOTALL)
_DEPTH = 8  # of nested types; deeper ones are `any`
_INDENT = "    "
_TYPES = {"integer": "number"}


class Harmony:
    """`to=functions.NAME<|channel|>commentary <|constrain|>json<|message|>{"item": "mug"}<|call|>`.

    The order of recipient and channel is that of openai-harmony's renderer; models write the other one as well, and both are read.
    """

    markers = MARKERS

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)

    def describe(self) -> str:
        if not self._tools:
            return ""
        functions = "".join(f"{_function(tool)}\n\n" for tool in self._tools)
        return f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{functions}}} // namespace functions"

    def write(self, message: Message) -> Pieces:
        thought, text = split_thought(message.content)
        if not (thought.startswith(OPENING) and thought.endswith(CLOSING)):
            thought, text = "", message.content
        parts = [[CHANNEL, "analysis", MESSAGE, thought[len(OPENING) : -len(CLOSING)]]] if thought else []
        if text or not message.tool_calls:
            parts.append([CHANNEL, "commentary" if message.tool_calls else "final", MESSAGE, text])
        parts = [[*part, END] for part in parts] + [[*_written(call), CALL] for call in message.tool_calls]
        between = [piece for part in parts for piece in (*part, START, "assistant")]
        return between[:-3]  # the frame writes the end of the last message

    def result(self, message: Message) -> Pieces:
        return [message.content]

    def content_end(self, text: str) -> int:
        return 0  # which channel a text is on, and whether a call follows, decides what of it is content

    def parse(self, text: str, turn: int) -> Parsed:
        thoughts: list[str] = []
        texts: list[str] = []
        calls: list[ToolCall] = []
        inside = ""  # the marker of a thought that is written as other models write it
        for header, body in _messages(text):
            if inside := open_thought(header, inside):
                texts.append(header + (body or ""))
                inside = open_thought(body or "", inside)
            elif (to := _RECIPIENT.search(header)) and to[1] != "assistant":
                calls.append(_call(f"call_{turn}_{len(calls)}", to[1].removeprefix(NAMESPACE), body))
            else:
                (thoughts if _ANALYSIS.search(header) else texts).append(body or "")
                inside = open_thought(body or "")
        thought = f"{OPENING}{''.join(thoughts)}{CLOSING}" if thoughts else ""
        return Parsed(thought + "".join(texts), tuple(calls))


def _messages(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield header and text of each message of a turn; no text if it was cut off before. Text without a header is one as well."""
    for part in _NEXT.split(text):
        header, marker, body = part.partition(MESSAGE)
        if marker:
            yield header, body
        elif _RECIPIENT.search(header) and CHANNEL in header:
            yield header, None
        elif CHANNEL not in header:
            yield "", header


def _call(call_id: str, name: str, body: str | None) -> ToolCall:
    if body is None:
        return ToolCall(call_id, storable(name), "", malformed=True)
    call = tool_call(name, body, call_id)
    try:
        if call.malformed or not storable(name) or len(body) > MAX_CHARACTERS:
            raise ValueError("a call has a name and an object of arguments")
        return ToolCall(call_id, name, neutral_arguments(arguments_of(call)))
    except ValueError:
        return ToolCall(call_id, storable(name), body, malformed=True)


def _written(call: ToolCall) -> Pieces:
    if not _NAME.fullmatch(call.name) and not call.malformed:
        raise DataError(f"{call.name!r} cannot be written in a header", call.id, "set model.tool_call_format to hermes")
    arguments = call.arguments if call.malformed else written_json(arguments_of(call))
    safe = _MARKER.sub(r"<\\u007c\1|>", arguments)  # the same JSON, without ending the message
    return [f" to={NAMESPACE}{call.name}", CHANNEL, "commentary ", CONSTRAIN, "json", MESSAGE, safe]


def _function(tool: ToolSpec) -> str:
    """Return a tool as a TypeScript type with comments."""
    arguments = f"_: {_Schema(tool.parameters).type(tool.parameters)}" if tool.arguments else ""
    return f"{_comment(tool.description, '')}type {tool.name} = ({arguments}) => any;"


class _Schema:
    """Writes parts of a JSON Schema as TypeScript types, laid out as openai-harmony does it; what has none there is `any`."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root

    def type(self, schema: Any, level: int = 0, depth: int = 0) -> str:
        """Return a type whose fields, if it has some, are indented for their level. `depth` counts the types around it."""
        if not isinstance(schema, dict) or depth == _DEPTH:
            return "any"
        if "$ref" in schema:
            return self.type(self._named(schema["$ref"]), level, depth + 1)
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        several = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(values, list) and values:
            found = " | ".join(map(written_json, values))
        elif isinstance(several, list):
            found = " | ".join(self.type(one, level, depth + 1) for one in several)
        else:
            kinds = schema.get("type")
            found = " | ".join(self._plain(kind, schema, level, depth) for kind in (kinds if isinstance(kinds, list) else [kinds]))
        return f"{found} | null" if schema.get("nullable") is True else found

    def _plain(self, kind: Any, schema: JsonObject, level: int, depth: int) -> str:
        if kind == "array":
            item = self.type(schema.get("items"), level, depth + 1)
            return f"({item})[]" if " | " in _BRACES.sub("", item) else f"{item}[]"
        properties = schema.get("properties")
        if kind != "object" or not isinstance(properties, dict) or not properties:
            return _TYPES.get(kind, kind) if isinstance(kind, str) else "any"
        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        fields = [self._field(name, one, name in needed, level, depth) for name, one in properties.items()]
        return "{\n" + "".join(fields) + _INDENT * level + "}"

    def _field(self, name: str, schema: Any, required: bool, level: int, depth: int) -> str:
        given, indent = schema if isinstance(schema, dict) else {}, _INDENT * level
        default = f" // default: {_default(given)}" if "default" in given else ""
        written = f"{name}{'' if required else '?'}: {self.type(given, level + 1, depth + 1)},{default}\n"
        return f"{_comment(given.get('description'), indent)}{indent}{written}"

    def _named(self, reference: Any) -> Any:
        try:
            return resolved(self._root, reference)
        except (ValueError, TypeError, AttributeError):
            return None


def _default(schema: JsonObject) -> str:
    value = schema["default"]
    return str(value) if isinstance(value, str) and "enum" in schema else written_json(value)


def _comment(text: Any, indent: str) -> str:
    return "".join(f"{indent}// {line}\n" for line in text.splitlines()) if isinstance(text, str) else ""
