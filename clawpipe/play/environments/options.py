"""The options of an environment: the fields of its `Config`, a pydantic model, or else the arguments of its constructor.

A field's unit, and whether it is locked, stand in its `json_schema_extra`:
`Field(2.0, json_schema_extra={"unit": "s", "locked": True})`. A locked field is shown, and no setting changes it. `"locked": False`
says that a text is harmless, so that an agent that trains itself may change it: it is no command, path or URL.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel

_SIMPLE = {"integer": (int,), "number": (int, float), "boolean": (bool,), "string": (str,), "null": (type(None),)}
_SHOWN = ("title", "default", "description", "unit", "locked", "type", "$ref")  # of a schema, as fields of their own


@dataclass(frozen=True)
class Option:
    """An option as people and programs are shown it.

    Attributes:
        type: in a word or two; "" where nothing says it.
        harmless: whether its author says that any value of its type is.
        limits: what JSON Schema says of its values beside the type, such as {"minimum": 1}.
        default: None where it is required, too.
    """

    name: str
    type: str
    default: Any
    required: bool
    locked: bool
    unit: str
    description: str
    limits: JsonObject
    harmless: bool = False

    def takes(self, value: Any) -> bool:
        """Whether a value is of the option's type, as far as that is a simple one."""
        kinds = [_SIMPLE.get(kind) for kind in self.type.split(" | ")]
        known = [kind for kind in kinds if kind]
        return len(known) < len(kinds) or any(type(value) in kind for kind in known)


def config_model(factory: Callable[..., Any]) -> type[BaseModel] | None:
    """Return the class of an environment's settings, its `Config`; None if it has none."""
    found, pydantic = getattr(factory, "Config", None), sys.modules.get("pydantic")  # a Python without it has no such class
    return found if pydantic and isinstance(found, type) and issubclass(found, pydantic.BaseModel) else None


def config_of(name: str, model: type[BaseModel], options: Options) -> BaseModel:
    """Return an environment's settings, checked.

    Raises:
        ConfigError: an option is unknown, locked, missing, or of another type or out of its bounds.
    """
    from pydantic import ValidationError

    fix = f"`clawpipe env show {name}` lists its options"
    known = {option.name: option for option in _fields(model)}
    for given in options:
        if given not in known and model.model_config.get("extra") != "allow":
            raise ConfigError(f"{name} has no option {given!r}", f"environment.options.{given}", fix)
        if given in known and known[given].locked:
            raise ConfigError(f"it is locked, and stays {known[given].default!r}", f"environment.options.{given}", "leave it out")
    try:
        return model.model_validate(options)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, ("environment.options", *first["loc"])))
        raise ConfigError(first["msg"], where, fix) from None


def described_options(factory: Callable[..., Any]) -> list[Option]:
    """Return the options of an environment's class, in its order."""
    model = config_model(factory)
    return list(_fields(model) if model else _arguments(factory))


def _fields(model: type[BaseModel]) -> Iterator[Option]:
    schema = model.model_json_schema(by_alias=True, mode="validation")
    definitions = schema.get("$defs", {})
    for name, shown in schema.get("properties", {}).items():
        yield _option(name, shown, name in schema.get("required", ()), definitions)


def _arguments(factory: Callable[..., Any]) -> Iterator[Option]:
    """Yield the arguments of a constructor; what they are for is read from its docstring or that of its class."""
    from clawpipe.play.environments.tool_files import documented  # it imports a reader of docstrings, which nothing else here needs

    maker = getattr(factory, "__init__", factory) if inspect.isclass(factory) else factory
    told = documented(factory)[1] | documented(maker)[1]
    for name, parameter in inspect.signature(factory).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            required = parameter.default is parameter.empty
            shown = _schema_of(maker, name) | {"default": None if required else _plain(parameter.default)}
            yield _option(name, shown | {"description": told.get(name, "")}, required, {})


def _plain(default: Any) -> Any:
    """Return a default as JSON can hold it: what is no JSON as Python writes it."""
    try:
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError):
        return repr(default)
    return default


def _schema_of(maker: Callable[..., Any], name: str) -> JsonObject:
    """Return the JSON Schema of an argument's type; empty where it has none."""
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(get_type_hints(maker)[name]).json_schema()
    except (PydanticUserError, NameError, KeyError, TypeError, AttributeError):
        return {}


def _option(name: str, shown: JsonObject, required: bool, definitions: JsonObject) -> Option:
    unit, locked, text = str(shown.get("unit", "")), shown.get("locked"), str(shown.get("description", ""))
    limits = {key: value for key, value in shown.items() if key not in _SHOWN}
    kind, default, harmless = _type(shown, definitions), shown.get("default"), locked is False
    return Option(name, kind, default, required, bool(locked), unit, text, limits, harmless)


def _type(shown: JsonObject, definitions: JsonObject) -> str:
    if "$ref" in shown:
        shown = definitions.get(shown["$ref"].rpartition("/")[2], {})
    if "enum" in shown or "const" in shown:
        return " | ".join(map(repr, shown.get("enum", [shown.get("const")])))
    parts = shown.get("anyOf") or shown.get("allOf")
    return " | ".join(_type(part, definitions) for part in parts) if parts else str(shown.get("type", ""))
