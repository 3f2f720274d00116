"""Grammars of calls in each tool-call format: what they allow, the format's reader in `policy.calls` reads as calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.schemas import types_of
from clawpipe.core.conversation.messages import ToolSpec, WrittenFormat
from clawpipe.model.policy.formats import harmony
from clawpipe.model.policy.formats.json_objects import Mistral
from clawpipe.serve.serving.grammars.literals import Literals
from clawpipe.serve.serving.grammars.rules import Rules, UnkeptError, choice, closed, quoted

# Text of a parameter between tags: no closing tag within it but one with a backslash, which is how the format quotes it.
_UP_TO_THE_TAG = r"([^<]|<+[^<\/])*\n<\/parameter>"
_KEY = r"[^<>\n]+"
_ROOTS = ("$defs", "definitions")  # of a schema, which references in its parts refer to


class Style(NamedTuple):
    """How a format writes calls: one after the other with `gap` between, within `opening` and `closing`."""

    call: Callable[[Rules, ToolSpec], str]
    gap: Sequence[str] | None = ("\n",)  # None: a turn has one call
    opening: Sequence[str] = ()
    closing: Sequence[str] = ()


def calls(rules: Rules, format: WrittenFormat, tools: Sequence[ToolSpec], several: bool) -> str:
    """Return an expression of a call to one of `tools`, or of one call or more if there may be `several`.

    Raises:
        UnkeptError: the schema of a tool's arguments cannot be kept in this format.
    """
    style = _STYLES[format]
    one = rules.add(choice([_call(rules, style, tool) for tool in tools]))
    more = f" ({rules.written(*style.gap)} {one})*" if several and style.gap else ""
    return f"{rules.written(*style.opening)} {one}{more} {rules.written(*style.closing)}"


def answer(rules: Rules, format: WrittenFormat, schema: JsonObject) -> str:
    """Return an expression of an answer that is a JSON value."""
    header = (harmony.CHANNEL, "final", harmony.MESSAGE) if format == "harmony" else ()
    return f"{rules.written(*header)} {rules.json(closed(schema))}"


def _call(rules: Rules, style: Style, tool: ToolSpec) -> str:
    try:
        return rules.add(style.call(rules, ToolSpec(tool.name, "", closed(tool.parameters))))
    except UnkeptError as error:
        raise UnkeptError(f"{tool.name}: {error}") from None


def _object(key: str, before: str = "", after: str = "") -> Callable[[Rules, ToolSpec], str]:
    """Return the grammar of a call that is a JSON object with its arguments under `key`."""

    def call(rules: Rules, tool: ToolSpec) -> str:
        opening = f'{before}{{"name": {quoted(tool.name)}, "{key}": '
        return f"{quoted(opening)} {rules.json(tool.parameters)} {quoted('}' + after)}"

    return call


def _message(rules: Rules, tool: ToolSpec) -> str:
    """Return harmony's call: a message to the function."""
    header = (f" to={harmony.NAMESPACE}{tool.name}", harmony.CHANNEL, "commentary ", harmony.CONSTRAIN, "json", harmony.MESSAGE)
    return f"{rules.written(*header)} {rules.json(tool.parameters)}"


def _pythonic(rules: Rules, tool: ToolSpec) -> str:
    literals = Literals(rules, tool.parameters)
    if all(name.isidentifier() and not iskeyword(name) for name in tool.arguments):
        return f"{quoted(tool.name + '(')} {literals.arguments(tool.parameters)} {quoted(')')}"
    return f"{quoted(tool.name + '(**')} {literals.value(tool.parameters)} {quoted(')')}"


def _tagged(rules: Rules, tool: ToolSpec) -> str:
    """Return a call in Qwen3-Coder's tags."""
    required = tool.parameters.get("required", [])
    written = [(_parameter(rules, tool, name, one), name in required) for name, one in tool.arguments.items()]
    parameters = " ".join(one if needed else f"({one})?" for one, needed in written)
    opening, closing = f"<tool_call>\n<function={tool.name}>\n", "</function>\n</tool_call>"
    return f"{quoted(opening)} {parameters} {quoted(closing)}"


def _parameter(rules: Rules, tool: ToolSpec, name: str, schema: Any) -> str:
    if not re.fullmatch(_KEY, name):
        raise UnkeptError(f"properties: {name!r} cannot be written in a tag")
    opening, closing = quoted(f"<parameter={name}>\n"), quoted("\n</parameter>\n")
    if types_of(schema, tool.parameters) <= {"string"}:
        return f"{opening} {_plain(rules, schema if isinstance(schema, dict) else {})} {quoted(chr(10))}"
    shared = {place: tool.parameters[place] for place in _ROOTS if place in tool.parameters}
    return f"{opening} {rules.json((schema if isinstance(schema, dict) else {}) | shared)} {closing}"


def _plain(rules: Rules, schema: JsonObject) -> str:
    """Return an expression of plain text with its closing tag."""
    if unkept := next((name for name in ("pattern", "format", "minLength", "maxLength", "$ref", "anyOf") if name in schema), None):
        raise UnkeptError(f"{unkept}: text between tags cannot be held to it")
    if values := schema.get("enum", [schema["const"]] if "const" in schema else None):
        return choice([quoted(f"{value}\n</parameter>") for value in values])
    return rules.lazy(_UP_TO_THE_TAG)


_STYLES: dict[WrittenFormat, Style] = {
    "hermes": Style(_object("arguments", "<tool_call>\n", "\n</tool_call>")),
    "llama3": Style(_object("parameters"), gap=("; ",)),
    "mistral": Style(_object("arguments"), gap=(", ",), opening=(Mistral.markers[0], " ["), closing=("]",)),
    "pythonic": Style(_pythonic),
    "qwen3-coder": Style(_tagged),
    "harmony": Style(_message, gap=None, closing=(harmony.CALL,)),
}
