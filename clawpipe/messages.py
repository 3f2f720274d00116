"""The neutral form of a conversation, which the store holds for every model's syntax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec.structs import asdict

from clawpipe.json_types import Row

Role = Literal["system", "user", "assistant", "tool"]


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call. `arguments` is a JSON object as a string; other text is kept as it is, with `malformed` set."""

    id: str
    name: str
    arguments: str
    malformed: bool = False


@dataclass(frozen=True)
class ToolSpec:
    """A tool. `parameters` maps each argument name to its JSON type ("string", "number"); all are required."""

    name: str
    description: str
    parameters: dict[str, str]


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message. Only tool results have `tool_call_id` and `name`.

    It is a struct because files hold millions; `msgspec.structs.replace` makes a changed copy.
    """

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def as_dict(self) -> Row:
        return asdict(self) | {"tool_calls": [asdict(call) for call in self.tool_calls]}

    @classmethod
    def from_dict(cls, row: Row) -> Message:
        """Return the message of a row: the inverse of `as_dict`; also takes rows from Arrow (None for an absent list)."""
        calls = tuple(ToolCall(**call) for call in row.get("tool_calls") or ())
        return cls(row["role"], row["content"], calls, row.get("tool_call_id"), row.get("name"))
