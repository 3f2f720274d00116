"""Tools in requests: which ones a policy is shown, which it may call, and whether it has to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.schemas import check_parameters
from clawpipe.core.conversation.messages import TOOL_NAME
from clawpipe.serve.serving.errors import ApiError
from clawpipe.serve.serving.fields import Block, wrapped

_FIELD = "tool_choice"


def _checked(parameters: JsonObject) -> JsonObject:
    check_parameters(parameters)
    return parameters


def _as_object(parameters: Any) -> Any:
    """Say that arguments are an object where their schema leaves it out."""
    return parameters if not isinstance(parameters, dict) or "type" in parameters else {"type": "object", **parameters}


class Function(Block):
    name: str = Field(pattern=f"^{TOOL_NAME}$")
    description: str | None = None
    parameters: Annotated[JsonObject, BeforeValidator(_as_object), AfterValidator(_checked)] | None = None
    strict: bool | None = None


class RequestTool(Block):
    type: Literal["function"]
    function: Function


class NamedFunction(Block):
    name: str


class AllowedTool(Block):
    type: Literal["function"]
    function: NamedFunction


class AllowedTools(Block):
    mode: Literal["auto", "required"]
    tools: list[AllowedTool] = Field(min_length=1)


class ToolChoice(Block):
    """`auto`, `none` or `required` alone, the name of a function, or a list of those that may be called."""

    type: Literal["auto", "none", "required", "function", "allowed_tools"]
    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None

    @property
    def names(self) -> list[str] | None:
        """The names of the tools that may be called; None: all of them."""
        if self.type == "function" and self.function:
            return [self.function.name]
        if self.type == "allowed_tools" and self.allowed_tools:
            return [tool.function.name for tool in self.allowed_tools.tools]
        return None

    @property
    def forces(self) -> bool:
        """Whether the answer has to be a call."""
        return self.type in ("required", "function") or bool(self.allowed_tools and self.allowed_tools.mode == "required")


GivenChoice = Annotated[ToolChoice, wrapped(str, lambda kind: {"type": kind})]


class Choosing(NamedTuple):
    """The names of the tools that may be called, whether one has to be, and whether several calls may be made."""

    names: frozenset[str]
    forced: bool
    several: bool


def choosing(tools: Sequence[RequestTool], choice: ToolChoice | None, parallel: bool | None) -> Choosing:
    """Return what a request says of calls.

    Raises:
        ApiError (400): a choice that needs tools has none, or names one that is not among them.
    """
    known = [tool.function.name for tool in tools]
    if choice is None or choice.type in ("auto", "none"):
        return Choosing(frozenset(known), False, parallel is not False)
    _check(choice, known)
    several = parallel is not False and choice.type != "function"
    return Choosing(frozenset(choice.names or known), choice.forces, several)


def _check(choice: ToolChoice, known: Sequence[str]) -> None:
    if not known:
        raise ApiError(400, f"{_FIELD} needs tools", _FIELD)
    if choice.type not in ("required",) and choice.names is None:
        raise ApiError(400, f"{_FIELD}.{choice.type} is missing", _FIELD, "missing_required_parameter")
    if unknown := next((name for name in choice.names or () if name not in known), None):
        raise ApiError(400, f"{_FIELD}: {unknown!r} is none of the tools", _FIELD, "invalid_value")
