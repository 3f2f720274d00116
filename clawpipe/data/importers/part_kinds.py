"""Say of what kind a part of a message's content is: makers name it in a field, by a part's only field, or around MCP's objects."""

from __future__ import annotations

import json
from typing import Any

from clawpipe.core.basics.json_types import JsonObject

_WRAPPERS = ("function", "toolInvocation")
_MCP = ("toolCall", "toolResult", "tool_call", "tool_result", "params")  # MCP's call or result in a part of another maker
_MCP_KINDS = ("toolRequest", "frontendToolRequest", "tool_request", "toolResponse", "tool_response", "tools/call")
_BARE = (
    "text",
    "functionCall",
    "function_call",
    "functionResponse",
    "function_response",
    "toolUse",
    "toolResult",
    "reasoningContent",
)


def kind_of(part: Any) -> tuple[str, JsonObject]:
    """Return the kind of a part, and its other fields."""
    if not isinstance(part, dict):
        return ("text", {"text": part}) if isinstance(part, str) else ("unknown", {})
    kind = part.get("type", part.get("method"))
    if kind in _MCP_KINDS:
        return kind, _without_mcp({name: value for name, value in part.items() if name not in ("type", "method")})
    if isinstance(part.get("type"), str):
        return part["type"], _unwrapped(_without(part, "type"))
    if part.get("thought") is True:
        return "thinking", _without(part, "thought")
    bare = next((name for name in _BARE if name in part), "unknown")
    content = _typed(part.get(bare))
    return bare, _without(part, bare) | content if isinstance(content, dict) else part


def _typed(content: Any) -> Any:
    """Return the content of a bare part; Bedrock's tool results hold texts and JSON that no type names."""
    listed = content.get("content") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) and one.keys() in ({"text"}, {"json"}) for one in listed):
        return content
    texts = [one["text"] if "text" in one else json.dumps(one["json"], ensure_ascii=False) for one in listed]
    return content | {"content": [{"type": "text", "text": text} for text in texts]}


def _without(part: JsonObject, name: str) -> JsonObject:
    return {other: value for other, value in part.items() if other != name}


def _unwrapped(fields: JsonObject) -> JsonObject:
    """Merge the fields of a wrapped call (`function`, `toolInvocation`) into the part's own fields."""
    wrapper = next((name for name in _WRAPPERS if isinstance(fields.get(name), dict)), None)
    return _without(fields, wrapper) | fields[wrapper] if wrapper else fields


def _without_mcp(fields: JsonObject) -> JsonObject:
    """Merge a call or a result of MCP into the part's own fields. What Rust calls `Ok` or a success stands around it."""
    name = next((name for name in _MCP if isinstance(fields.get(name), dict | list)), None)
    if name is None:
        return fields
    inner = fields[name]
    if isinstance(inner, dict) and ("error" in inner or "Err" in inner):
        return _without(fields, name) | {"content": inner.get("error", inner.get("Err")), "is_error": True}
    if isinstance(inner, dict) and ("value" in inner or "Ok" in inner):
        inner = inner.get("value", inner.get("Ok"))
    return _without(fields, name) | (inner if isinstance(inner, dict) else {"content": inner})
