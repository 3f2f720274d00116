"""Values of foreign records: objects, lists and texts, which may be absent, of another type, spelled as JSON, or taken apart."""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.arguments import parsed


def object_of(value: Any) -> JsonObject:
    """Return an object, also from its JSON text; an empty one for any other value."""
    found = unspelled(value)
    return found if isinstance(found, dict) else {}


def objects_of(value: Any) -> list[JsonObject]:
    """Return the objects in a list, also from its JSON text; none for any other value."""
    found = unspelled(value)
    return [part for part in found if isinstance(part, dict)] if isinstance(found, list) else []


def text_of(value: Any) -> str | None:
    """Return a text that is not empty; None for any other value."""
    return value if isinstance(value, str) and value else None


def name_of(record: JsonObject, *names: str) -> str | None:
    """Return the first of these fields that holds a name: a text, or a whole number, which a table with nulls holds as a double."""
    found = (record.get(name) for name in names)
    whole = (int(value) if isinstance(value, float) and value.is_integer() else value for value in found)
    return next((str(value) for value in whole if value != "" and type(value) in (str, int)), None)


def unspelled(value: Any) -> Any:
    """Return the object or list that a JSON text spells; any other value as it is."""
    found = parsed(value) if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") else None
    return value if found is None else found


def without(record: JsonObject, *names: str) -> JsonObject:
    """Return the fields of a record that have none of these names."""
    return {name: value for name, value in record.items() if name not in names}


def nested(record: JsonObject) -> JsonObject:
    """Return an object whose names have dots as objects in objects: `{"a.b": 1}` is `{"a": {"b": 1}}`."""
    whole: JsonObject = {}
    for name, value in record.items():
        _put(whole, name.split("."), value)
    return whole


def _put(whole: JsonObject, path: list[str], value: Any) -> None:
    for name in path[:-1]:
        inner = whole.get(name)
        whole = whole.setdefault(name, {}) if isinstance(inner, dict) or inner is None else {}
    known = whole.get(path[-1])
    whole[path[-1]] = known | value if isinstance(known, dict) and isinstance(value, dict) else value


def numbered(value: Any) -> list[JsonObject]:
    """Return a list of objects, also from an object whose keys are numbers."""
    inner = object_of(value)
    if inner and all(name.isdecimal() for name in inner):
        return [object_of(inner[name]) for name in sorted(inner, key=int)]
    return objects_of(value.tolist() if hasattr(value, "tolist") else value)
