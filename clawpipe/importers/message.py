"""Messages in the form of the chat API, which several formats hold."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

from clawpipe.importers.record import Fields, as_list
from clawpipe.importers.strict import RefusedError
from clawpipe.importers.toolcalls import parsed, tool_call
from clawpipe.messages import Message, Role, ToolCall

_ROLES = {role: role for role in get_args(Role)} | {"developer": "system", "function": "tool"}
_SPEAKERS = get_args(Role)
_INNER_THOUGHT = re.compile(r"\s*<think>")
_REFERENCES = ("url", "file_id", "path", "id")
_WEIGHT = "weight"  # of an assistant message in a fine-tuning row; a reader of rows takes it


def read_messages(given: Iterable[Any], where: str = "messages") -> tuple[tuple[Message, ...], list[dict[str, Any]]]:
    """Messages, and the fields of each that a message does not have, with its index under `message`.

    Raises:
        RefusedError: one of them is none.
    """
    messages: list[Message] = []
    unknown: list[dict[str, Any]] = []
    for number, part in enumerate(as_list(given, where)):
        if len(part) == 2 and part.get("role") in _SPEAKERS and isinstance(part.get("content"), str):
            messages.append(Message(part["role"], part["content"]))  # most messages are no more than this
            continue
        fields = Fields(part, f"{where}[].")
        messages.append(_read(fields, number))
        rest = fields.rest
        rest.pop(_WEIGHT, None)
        if rest:
            unknown.append({"message": number} | rest)
    return tuple(messages), unknown


def read_message(part: dict[str, Any], number: int = 0) -> Message:
    """One message. `number` tells unnamed calls apart.

    Raises:
        RefusedError: no such role, or fields of another type.
    """
    return _read(Fields(part, "messages[]."), number)


def write_chat(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The `messages` of a row, which `read_messages` reads back."""
    return [_written(message) for message in messages]


def _read(fields: Fields, number: int) -> Message:
    role = _ROLES.get(fields.take("role", str))
    if role is None:
        raise RefusedError("messages[].role: not system, user, assistant or tool")
    calls = tuple(_calls(fields, number)) if role == "assistant" else ()
    text, thought = _content(fields.take("content", str, list, dict, default=""))
    name = fields.take("name", str, default=None) or fields.take("tool_name", str, default=None) if role == "tool" else None
    return Message(role, _with_thought(text, thought, fields), calls, fields.take("tool_call_id", str, default=None), name)  # type: ignore[arg-type]


def _calls(fields: Fields, number: int) -> Iterator[ToolCall]:
    given = fields.take("tool_calls", list, str, default=[])
    single = fields.take("function_call", dict, default=None)
    listed = parsed(given) if isinstance(given, str) else given
    if not isinstance(listed, list):
        yield ToolCall(f"call_{number}_0", "", given, malformed=True)
        return
    for place, call in enumerate(as_list([*listed, *([single] if single else [])], "messages[].tool_calls")):
        function = call.get("function")
        function = function if isinstance(function, dict) else call
        call_id = call.get("id")
        name = call_id if isinstance(call_id, str) else f"call_{number}_{place}"
        yield tool_call(function.get("name"), function.get("arguments", {}), name)


def _content(content: str | list[Any] | dict[str, Any]) -> tuple[str, str]:
    """Texts of the parts, and of what they hold of thoughts; an image, sound or file is kept as a reference in its place."""
    if isinstance(content, str):
        return content, ""
    if isinstance(content, dict):
        return json.dumps(content, ensure_ascii=False), ""
    parts = [{"text": part} if isinstance(part, str) else part for part in content]
    spoken = [part for part in as_list(parts, "messages[].content") if part.get("type") not in ("thinking", "reasoning")]
    thoughts = [str(part.get(part["type"], part.get("text", ""))) for part in parts if part not in spoken]
    return "".join(_part(part) for part in spoken), "\n".join(thoughts)


def _part(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return part["text"]
    kind = str(part.get("type", "unknown"))
    held = part.get(kind, part.get("source", part))
    found = [held[name] for name in _REFERENCES if held.get(name)] if isinstance(held, dict) else [held]
    return f"[{kind}: {_reference(found[0] if found else held)}]"


def _reference(held: Any) -> str:
    """A name for what is not text: its address, or the digest of what came inline, whose bytes no text column should hold."""
    if isinstance(held, str) and not held.startswith("data:"):
        return held
    inline = held if isinstance(held, str) else json.dumps(held, ensure_ascii=False, sort_keys=True)
    return f"sha256:{hashlib.sha256(inline.encode()).hexdigest()}"


def _with_thought(text: str, thought: str, fields: Fields) -> str:
    """Reasoning that came in a field of its own stands before the text in its tags, as models write it."""
    thought = fields.take("reasoning_content", str, default=None) or fields.take("reasoning", str, default=None) or thought
    return f"<think>\n{thought}\n</think>\n{text}" if thought and not _INNER_THOUGHT.match(text) else text


def _written(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        row["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return row | {name: value for name in ("tool_call_id", "name") if (value := getattr(message, name)) is not None}
