"""Grammars of Python literals that fit a JSON Schema, for calls in Python's syntax.

Numbers and double-quoted texts are the same in JSON and Python, so their rules come from llguidance's own reading of JSON Schema.
What differs is put together here: True, False and None, and lists and mappings, which may hold them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.schemas import resolved
from clawpipe.serve.serving.grammars.rules import Rules, UnkeptError, choice, quoted

_NOTES = frozenset(  # keywords that restrict nothing
    (
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"),
        *("$schema", "$id", "$comment", "$defs", "definitions"),
    )
)
_NUMBER = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_KEYWORDS: dict[str, frozenset[str]] = {
    "string": frozenset({"pattern", "format", "minLength", "maxLength"}),
    "integer": _NUMBER,
    "number": _NUMBER,
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
_OF_ANY = frozenset().union(*_KEYWORDS.values())
_ALONE = ("$ref", "enum", "const", "anyOf", "oneOf", "allOf")  # keywords that stand without others here


class Literals:
    """Rules of Python literals; `root` is the schema that references refer to."""

    def __init__(self, rules: Rules, root: JsonObject) -> None:
        self._rules, self._root = rules, root
        self._named: dict[str, str] = {}
        self._any = ""

    def value(self, schema: Any) -> str:
        """Return the name of the rule of a value.

        Raises:
            UnkeptError: the schema has a keyword that cannot be kept.
        """
        given = {name: value for name, value in schema.items() if name not in _NOTES} if isinstance(schema, dict) else {}
        if schema is False:
            raise UnkeptError("false: no value fits it")
        if not given:
            return self._anything()
        if lone := next((name for name in _ALONE if name in given), None):
            return self._lone(lone, given)
        if unknown := next((name for name in given if name != "type" and name not in _OF_ANY), None):
            raise UnkeptError(f"{unknown}: calls in Python's syntax cannot be held to it")
        kinds = _kinds(given)
        return self._rules.add(choice([self._of_kind(kind, given) for kind in kinds]))

    def arguments(self, schema: JsonObject) -> str:
        """Return the name of the rule of keyword arguments, whose names Python can write."""
        return self._members(schema, lambda name: f"{name}=")

    def _lone(self, keyword: str, given: JsonObject) -> str:
        if others := given.keys() - {keyword, *(("type",) if keyword in ("enum", "const") else ())}:
            raise UnkeptError(f"{keyword}: calls in Python's syntax cannot be held to it beside {min(others)}")
        value = given[keyword]
        match keyword:
            case "$ref":
                return self._reference(value)
            case "enum" | "const":
                return self._rules.add(choice([quoted(_written(one)) for one in (value if keyword == "enum" else [value])]))
            case "allOf" if len(value) != 1:
                raise UnkeptError("allOf: calls in Python's syntax cannot be held to several schemas at once")
        return self._rules.add(choice([self.value(one) for one in value]))

    def _reference(self, reference: str) -> str:
        if reference not in self._named:
            name = self._named[reference] = self._rules.reserve()
            self._rules.define(name, self.value(resolved(self._root, reference)))
        return self._named[reference]

    def _of_kind(self, kind: str, given: JsonObject) -> str:
        match kind:
            case "boolean":
                return '"True" | "False"'
            case "null":
                return '"None"'
            case "array":
                return f'"[" {self._items(given)} "]"'
            case "object":
                return f'"{{" {self._mapping(given)} "}}"'
        return self._rules.json({"type": kind} | {name: value for name, value in given.items() if name in _KEYWORDS[kind]})

    def _items(self, given: JsonObject) -> str:
        least, most = given.get("minItems", 0), given.get("maxItems")
        if fixed := given.get("prefixItems"):
            if (least, most) != (len(fixed), len(fixed)):
                raise UnkeptError("prefixItems: as many items as minItems and maxItems say")
            return self._rules.members([(self.value(one), True) for one in fixed])
        if most == 0:
            return '""'
        item = self.value(given.get("items", True))
        more = f'{item} (", " {item}){{{max(least - 1, 0)},{"" if most is None else most - 1}}}'
        return self._rules.add(more if least else f'({more} | "")')

    def _mapping(self, given: JsonObject) -> str:
        others = given.get("additionalProperties", True)
        if given.get("properties") or others is False:
            return self._members(given, lambda name: f"{_written(name)}: ")
        entry = f'{self._rules.json({"type": "string"})} ": " {self.value(others)}'
        return self._rules.add(f'(({entry} (", " {entry})*) | "")')

    def _members(self, schema: JsonObject, spell: Callable[[str], str]) -> str:
        """Return the name of the rule of an object's named members, each after its name as `spell` writes it."""
        properties, required = _properties(schema), schema.get("required", [])
        if unnamed := next((name for name in required if name not in properties), None):
            raise UnkeptError(f"required: no property is named {unnamed!r}")
        members = [(f"{quoted(spell(name))} {self.value(one)}", name in required) for name, one in properties.items()]
        return self._rules.members(members)

    def _anything(self) -> str:
        if not self._any:
            self._any = self._rules.reserve()
            kinds = [self._of_kind(kind, {}) for kind in ("string", "number", "boolean", "null", "array", "object")]
            self._rules.define(self._any, choice(kinds))
        return self._any


def _kinds(given: JsonObject) -> Sequence[str]:
    """Return the types that a schema allows."""
    if "type" in given:
        return given["type"] if isinstance(given["type"], list) else [given["type"]]
    [*implied] = [kind for kind, keywords in _KEYWORDS.items() if keywords & given.keys()]
    if "integer" in implied or len(implied) != 1:
        raise UnkeptError(f"type: it is missing beside {min(given)}")
    return implied


def _properties(schema: JsonObject) -> JsonObject:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _written(value: Any) -> str:
    """Return JSON as a Python literal, with double quotes around texts."""
    match value:
        case dict():
            return "{" + ", ".join(f"{_written(name)}: {_written(one)}" for name, one in value.items()) + "}"
        case list():
            return f"[{', '.join(map(_written, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=False)
    return repr(value)
