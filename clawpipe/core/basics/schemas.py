"""JSON Schemas of tools' arguments: check a schema, and check arguments against one. Nothing is ever fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.patterns import OUT_OF_TIME, occurs

TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_TYPE_OF = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_MOST_SHOWN = 200  # characters of an error that are passed on
_DEPTH = 32  # of references and alternatives that are followed for a type


def check_parameters(schema: Any) -> None:
    """Check that `schema` is a JSON Schema of an object, as a tool's arguments are.

    Raises:
        ValueError: it is not, see `check_schema`.
    """
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError('type: the schema of a tool\'s arguments has the type "object"')
    check_schema(schema)


def check_schema(schema: Any) -> None:
    """Check that `schema` is a JSON Schema whose references stay inside it.

    Raises:
        ValueError: it is not; the message names the field.
    """
    if not isinstance(schema, dict):
        raise ValueError("a JSON Schema is an object")
    try:
        _check_text(json.dumps(schema, allow_nan=False))
    except RecursionError:
        raise ValueError("nested too deeply") from None


@lru_cache(maxsize=256)  # a client sends the same tools with every request, and a check takes milliseconds
def _check_text(schema: str) -> None:
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for

    loaded = json.loads(schema)
    try:
        validator_for(loaded, default=Draft202012Validator).check_schema(loaded)
    except SchemaError as error:
        raise ValueError(f"{_place(error.absolute_path)}{error.message[:_MOST_SHOWN]}") from None
    for reference in _references(loaded):
        resolved(loaded, reference)


def argument_error(schema: JsonObject, arguments: Any) -> str:
    """Return what is wrong with the arguments of a call, with the field's name; "" if they fit the schema.

    Args:
        schema: passes `check_schema`.
        arguments: JSON.
    """
    from jsonschema.exceptions import best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    validator = _validator_for(schema.get("$schema", ""))(schema, registry=Registry())
    try:
        error = best_match(validator.iter_errors(arguments))
    except (RecursionError, Unresolvable):  # an `$id` in the schema may move what its references mean
        return "cannot be checked by the tool's schema"
    return f"{_place(error.absolute_path)}{error.message[:_MOST_SHOWN]}" if error else ""


@lru_cache(maxsize=16)
def _validator_for(dialect: str) -> Any:
    """Return jsonschema's class for a dialect, with a limit on the time of each pattern, which a client or a user has written."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend, validator_for

    known = validator_for({"$schema": dialect}, default=Draft202012Validator)
    limited = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    return extend(known, limited)


def _pattern(validator: Any, pattern: str, value: Any, schema: JsonObject) -> Iterator[Exception]:
    if validator.is_type(value, "string"):
        yield from _unmatched(pattern, value)


def _pattern_properties(validator: Any, patterns: JsonObject, value: Any, schema: JsonObject) -> Iterator[Exception]:
    for name, part in value.items() if validator.is_type(value, "object") else ():
        for pattern, subschema in patterns.items():
            if (found := occurs(pattern, name)) is None:
                yield from _unmatched(pattern, name)
            elif found:
                yield from validator.descend(part, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, additional: Any, value: Any, schema: JsonObject) -> Iterator[Exception]:
    """Check the properties that no name and no pattern of the schema covers, as the library does once they are told apart."""
    from jsonschema import Draft202012Validator

    patterns = schema.get("patternProperties", {})
    if patterns and validator.is_type(value, "object"):
        value = {name: part for name, part in value.items() if not any(occurs(pattern, name) is not False for pattern in patterns)}
    rest = {name: part for name, part in schema.items() if name != "patternProperties"}
    yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, additional, value, rest)


def _unmatched(pattern: str, text: str) -> Iterator[Exception]:
    from jsonschema import ValidationError

    if not (found := occurs(pattern, text)):
        yield ValidationError(f"{text!r} does not match {pattern!r}" if found is False else f"{pattern!r}: {OUT_OF_TIME}")


def types_of(schema: Any, root: JsonObject) -> frozenset[str]:
    """Return the JSON types that a schema allows; all of `TYPES` where it does not say, or is no schema.

    Args:
        schema: part of `root`.
        root: the schema that references are looked up in.
    """
    try:
        return _types_of(schema, root, _DEPTH)
    except (ValueError, TypeError, AttributeError):
        return TYPES


def type_of(value: Any) -> str:
    """Return the JSON type of a value; a whole number is an integer."""
    return _TYPE_OF.get(type(value), "null")


def _types_of(schema: Any, root: JsonObject, depth: int) -> frozenset[str]:
    if not isinstance(schema, dict) or depth == 0:
        return TYPES
    found = TYPES
    if "type" in schema:
        found &= _named(schema["type"])
    if "enum" in schema or "const" in schema:
        found &= frozenset(map(type_of, schema.get("enum", [schema.get("const")])))
    if "$ref" in schema:
        found &= _types_of(resolved(root, schema["$ref"]), root, depth - 1)
    for part in schema.get("allOf", ()):
        found &= _types_of(part, root, depth - 1)
    for alternatives in filter(None, (schema.get("anyOf"), schema.get("oneOf"))):
        found &= frozenset[str]().union(*(_types_of(part, root, depth - 1) for part in alternatives))
    return found


def _named(kind: str | list[str]) -> frozenset[str]:
    kinds = frozenset([kind] if isinstance(kind, str) else kind)
    return kinds | {"integer"} if "number" in kinds else kinds


def _references(schema: Any) -> Iterator[str]:
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key in ("$ref", "$dynamicRef") and isinstance(value, str):
            yield value
        yield from _references(value)
    for value in schema if isinstance(schema, list) else ():
        yield from _references(value)


def resolved(root: JsonObject, reference: str) -> Any:
    """Return what a reference like `#/$defs/Place` names inside `root`.

    Raises:
        ValueError: it names nothing there.
    """
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    specification = specification_with(root.get("$schema", ""), default=DRAFT202012)
    registry = Registry().with_resource("", specification.create_resource(root))
    try:
        return registry.resolver().lookup(reference).contents
    except Unresolvable:
        raise ValueError(f"$ref: {reference!r} names nothing in this schema; nothing outside it is looked up") from None


def _place(path: Any) -> str:
    place = ".".join(map(str, path))
    return f"{place}: " if place else ""
