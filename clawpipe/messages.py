"""The neutral form of a conversation, which the store holds for every model's syntax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import asdict

from clawpipe.json_types import JsonObject, Row

Role = Literal["system", "user", "assistant", "tool"]
ToolCallFormat = Literal["pythonic", "hermes", "llama3", "mistral", "qwen3-coder"]  # see clawpipe.policy.calls
TOOL_NAME = r"[A-Za-z0-9_.-]{1,64}"  # what OpenAI's clients may send


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call. `arguments` is a JSON object as a string; other text is kept as it is, with `malformed` set."""

    id: str
    name: str
    arguments: str
    malformed: bool = False


@dataclass(frozen=True)
class ToolSpec:
    """A tool.

    Attributes:
        parameters: JSON Schema of the arguments, which are an object. May be given in short as the JSON type of each argument,
            all of which are required: `{"item": "string"}`.
    """

    name: str
    description: str
    parameters: JsonObject

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", _schema(self.parameters))

    @property
    def arguments(self) -> JsonObject:
        """The schema of each argument by name."""
        properties = self.parameters.get("properties")
        return cast(JsonObject, properties) if isinstance(properties, dict) else {}

    @property
    def is_flat(self) -> bool:
        """Whether every argument has one plain type and is required, so that the names say how to call the tool."""
        return _types(self.parameters, _NOTES) is not None

    def as_function(self) -> JsonObject:
        """Return the tool in OpenAI's form."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


_NOTES = frozenset({"description", "title", "$schema"})  # of a schema: they restrict nothing


def _schema(parameters: JsonObject) -> JsonObject:
    """Return the schema in full. If it has a short form, its keys get the order that this form's have."""
    is_short = parameters.get("type") != "object" and all(isinstance(kind, str) for kind in parameters.values())
    types = parameters if is_short else _types(parameters, frozenset())
    if types is None:
        return parameters
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}, "required": list(types)}


def _types(schema: JsonObject, notes: frozenset[str]) -> dict[str, str] | None:
    """Return the JSON type of each argument; None if the schema says more than that, apart from `notes`.

    That the arguments have no others is no more, once all are required.
    """
    said = {key: value for key, value in schema.items() if key not in notes}
    if notes and said.get("additionalProperties") is False:
        del said["additionalProperties"]
    properties, required = said.pop("properties", {}), said.pop("required", [])
    if said not in ({}, {"type": "object"}) or not isinstance(properties, dict) or not isinstance(required, list):
        return None
    types = {name: _type(argument, notes) for name, argument in cast(JsonObject, properties).items()}
    known = {name: kind for name, kind in types.items() if kind is not None}
    return known if known.keys() == types.keys() == set(map(str, cast(list[Any], required))) else None


def _type(schema: Any, notes: frozenset[str]) -> str | None:
    """Return the one type that a schema names; None if it says more, or none."""
    said = {key: value for key, value in cast(JsonObject, schema).items() if key not in notes} if isinstance(schema, dict) else {}
    kind = said.get("type")
    return kind if len(said) == 1 and isinstance(kind, str) else None


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
