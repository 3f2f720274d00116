"""The neutral form of a conversation, which the store holds for every model's syntax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from clawpipe.core.basics.json_types import JsonObject, Row

if TYPE_CHECKING:
    from msgspec import Struct
    from msgspec.structs import asdict
else:
    try:
        from msgspec import Struct
        from msgspec.structs import asdict
    except ModuleNotFoundError:  # in the Python of a user's environment
        from clawpipe.core.basics.plain_structs import Struct, asdict

Role = Literal["system", "user", "assistant", "tool"]
WrittenFormat = Literal["pythonic", "hermes", "llama3", "mistral", "qwen3-coder", "harmony"]  # see clawpipe.model.policy.calls
ToolCallFormat = Literal[WrittenFormat, "own"]  # own: the model's chat template writes all, see clawpipe.model.policy.template
TOOL_NAME = r"[A-Za-z0-9_.-]{1,128}"  # what clients may send: OpenAI's chats 64 characters, responses and Anthropic's 128


class ToolCall(Struct, frozen=True, gc=False):
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
        """Whether the arguments' names suffice to call the tool: each has a plain type or no type, and all are required."""
        if self.parameters.keys() - _NOTES - {"type", "properties", "required", "additionalProperties"}:
            return False
        closed = self.parameters.get("additionalProperties", False) is False
        required = _names(self.parameters.get("required", [*self.arguments]))
        return closed and required == self.arguments.keys() and all(map(_is_plain, self.arguments.values()))

    def as_function(self) -> JsonObject:
        """Return the tool in OpenAI's form."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


_NOTES = {"description", "title", "$schema"}  # of a schema: they restrict nothing


def _schema(parameters: JsonObject) -> JsonObject:
    """Return the schema in full. If it has a short form, its keys get the order that this form's have."""
    is_short = parameters.get("type") != "object" and all(isinstance(kind, str) for kind in parameters.values())
    types = parameters if is_short else _short_form(parameters)
    if types is None:
        return parameters
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}, "required": list(types)}


def _short_form(schema: JsonObject) -> dict[str, str] | None:
    """Return the JSON type of each argument; None if the schema says anything else."""
    properties = schema.get("properties", {})
    if schema.keys() - {"type", "properties", "required"} or not isinstance(properties, dict):
        return None
    schemas = cast(JsonObject, properties)
    types = {name: argument["type"] for name, argument in schemas.items() if _is_plain(argument) and argument.keys() == {"type"}}
    return types if types.keys() == schemas.keys() == _names(schema.get("required", [])) else None


def _names(required: Any) -> set[str]:
    return {*map(str, cast(list[Any], required))} if isinstance(required, list) else set()


def _is_plain(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    keywords = cast(JsonObject, schema)
    return not keywords.keys() - _NOTES - {"type"} and isinstance(keywords.get("type", ""), str)


class Message(Struct, frozen=True, gc=False):
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
