"""The settings of a training that an agent is shown: those that it may change, and those that are locked.

An agent may change numbers, switches and choices of how a night learns. Locked is whatever could run a program, reach another
place, or make the examination easier: texts (commands, paths, URLs, names), the held-out items and the gate, and where results go.
Of an environment's texts its author may say that they are harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.load import settings_of
from clawpipe.core.config.night import NightConfig
from clawpipe.play.environments.options import Option

OPTIONS = "environment.options."
_LEARNING = ("rounds", "seed", "environment.train_items", "rollouts.", "curation.", "train.")  # what an agent may change some of
# But for these: the engine, and what keeps poison out.
_GUARDS = ("rollouts.engine.", "curation.quotas.", "curation.near.", "curation.approved_only")
_SIMPLE = {"integer", "number", "boolean"}


@dataclass(frozen=True)
class Field:
    """A setting as it is shown.

    Attributes:
        type: in a word or two, such as `integer`; choices as `'a' | 'b'`.
        value: what it is in the settings as they stand.
    """

    name: str
    type: str
    default: Any
    description: str
    value: Any
    locked: bool

    def shown(self) -> JsonObject:
        """Return the field as the tools print it."""
        told = {"name": self.name, "type": self.type, "default": self.default, "description": self.description}
        return told | {"current_value": self.value} | ({"locked_value": self.value} if self.locked else {})


def fields_of(config: NightConfig, options: list[Option]) -> list[Field]:
    """Return the settings of a night, those of the environment first.

    Args:
        options: those of the night's environment.
    """
    return [*_of_environment(config, options), *_of_night(config)]


def _of_environment(config: NightConfig, options: list[Option]) -> Iterator[Field]:
    for one in options:
        value = config.environment.options.get(one.name, one.default)
        locked = one.locked or not (one.harmless or _is_simple(one.type))
        yield Field(OPTIONS + one.name, one.type, one.default, one.description, value, locked)


def _of_night(config: NightConfig) -> Iterator[Field]:
    values, schema = config.model_dump(mode="json"), NightConfig.model_json_schema()
    for name in settings_of(NightConfig):
        if name.startswith("environment") and name != "environment.train_items":
            continue  # chosen as a whole
        shown = _schema_of(schema, name)
        kind = _type(shown)
        locked = not (name.startswith(_LEARNING) and _is_simple(kind)) or name.startswith(_GUARDS)
        yield Field(name, kind, shown.get("default"), shown.get("description", ""), _value(values, name), locked)


def _value(values: Any, name: str) -> Any:
    for part in name.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _schema_of(schema: JsonObject, name: str) -> JsonObject:
    found: JsonObject = schema
    for part in name.split("."):
        found = _inner(schema, found)["properties"][part]
    return found


def _inner(schema: JsonObject, found: JsonObject) -> JsonObject:
    """Return the definition of the block that a field holds."""
    choices = [found, *found.get("anyOf", ()), *found.get("allOf", ())]
    reference = next((one["$ref"] for one in choices if "$ref" in one), None)
    return schema["$defs"][reference.rpartition("/")[2]] if reference else found


def _type(shown: JsonObject) -> str:
    if "enum" in shown or "const" in shown:
        return " | ".join(map(repr, shown.get("enum", [shown.get("const")])))
    return " | ".join(map(_type, shown["anyOf"])) if "anyOf" in shown else str(shown.get("type", "object"))


def _is_simple(kind: str) -> bool:
    """Whether a value of this type is a number, a switch or one of the choices named, and so leads nowhere."""
    parts = [part for part in kind.split(" | ") if part != "null"]
    return bool(parts) and all(part in _SIMPLE or part.isdigit() or part[:1] == part[-1:] == "'" for part in parts)
