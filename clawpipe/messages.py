"""The neutral form of a conversation: what the store holds, whatever a model's own syntax is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict

Role = Literal["system", "user", "assistant", "tool"]


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call. `arguments` is a JSON object as a string; text that is no JSON object is kept as evidence with `malformed` set."""

    id: str
    name: str
    arguments: str
    malformed: bool = False


@dataclass(frozen=True)
class ToolSpec:
    """A tool on offer. `parameters` maps each argument name to its JSON type ("string", "number"); all are required."""

    name: str
    description: str
    parameters: dict[str, str]


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message. `tool_call_id` and `name` are set on tool results only.

    A struct, because files hold millions: `msgspec.structs.replace` makes a changed copy.
    """

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"tool_calls": [asdict(call) for call in self.tool_calls]}

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Message:
        """Inverse of `as_dict`; also takes rows as Arrow returns them (None for an absent list)."""
        calls = tuple(ToolCall(**call) for call in row.get("tool_calls") or ())
        return cls(row["role"], row["content"], calls, row.get("tool_call_id"), row.get("name"))
