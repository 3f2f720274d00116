"""Tasks made from the tools of a server, without a file of prompts: what to do is told by the tools' own descriptions.

Calls are drawn from the tools' schemas and made on a new server. A task is kept if they change what the server says of its state
(so that doing nothing is wrong); each tool is tried twice, since what differs then cannot be checked. Of tools that change nothing,
the result is asked for.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.schemas import argument_error
from clawpipe.core.conversation.messages import ToolSpec
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.tools import connected

Call = tuple[str, JsonObject]
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "islet", "karst", "lemon", "maple", "north")
_SECONDS = 30.0  # of a call
_MOST = 8192  # characters of a result
_TRIES = 6  # draws for each task that is wanted
_LONGEST = 3  # calls of a task
_SHORT = 60  # characters of a result that is asked for as an answer
_FAILED = "error: "


def made_tasks(server: str, count: int, seed: int = 0) -> list[JsonObject]:
    """Return up to `count` lines of a file of prompts for the environment `tools`.

    Args:
        server: command of an MCP server, or a JSON file of functions; each task that changes its state takes a start of it.

    Raises:
        ConfigError: it does not start, or is a running one, which the calls would change.
        DataError: no task can be made of its tools, or its state outlives it.
    """
    if server.startswith("http"):
        raise ConfigError("tasks are made by calls, which would change a running server", server, "give the command that starts it")
    lot, found = random.Random(seed), dict[str, JsonObject]()
    with _Maker(server) as maker:
        for _ in range(count * _TRIES):
            if len(found) == count:
                break
            if task := maker.task(lot):
                found.setdefault(task["prompt"], task)
    if not found:
        what = "no calls of its tools change what a tool without required arguments says, and none returns a short answer"
        raise DataError(what, server, "write a file of prompts, and give it with --mcp")
    return list(found.values())


class _Tried(NamedTuple):
    """What calls did: their results up to the first that failed, and what the readers say afterwards."""

    results: list[str]
    after: dict[str, str]


class _Maker(ExitStack):
    """Makes tasks on a server that is started again whenever its state has changed."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self._renew()
        self._tools = {tool.name: tool for tool in self._running.tools}
        self._readers = [name for name, tool in self._tools.items() if not tool.parameters.get("required")]
        self._drawn_from = [tool for name, tool in self._tools.items() if name not in self._readers] or [*self._tools.values()]
        self._before = self._steady()
        self._readers = [*self._before]
        self._repeated: dict[str, bool] = {}

    def task(self, lot: random.Random) -> JsonObject | None:
        """Return a task of drawn calls; None if they fail, change nothing that can be read, or do not do so twice."""
        calls = _drawn(self._drawn_from, lot)
        tried = self._tried(calls)
        failed = tried.results[-1].startswith(_FAILED)
        return None if failed or not self._repeats(calls, tried) else self._line(calls, tried)

    def _line(self, calls: Sequence[Call], tried: _Tried) -> JsonObject | None:
        told = " Then: ".join(_told(self._tools[name], arguments) for name, arguments in calls)
        line = {"prompt": told, "slice": calls[-1][0]}
        changed = [name for name, said in tried.after.items() if said != self._before[name] and not said.startswith(_FAILED)]
        if changed:
            answer = [{"name": name, "arguments": {}, "result": tried.after[name]} for name in changed]
            return line | {"answer": answer, "check": "state"}
        if len(calls) == 1 and 0 < len(tried.results[0]) <= _SHORT:
            return line | {"prompt": f"{told} Say what the result is.", "answer": tried.results[0], "check": "contains"}
        return None

    def _tried(self, calls: Sequence[Call]) -> _Tried:
        results: list[str] = []
        for name, arguments in calls:
            results.append(self._running.call(name, arguments))
            if results[-1].startswith(_FAILED):
                break
        after = self._said()
        if after != self._before:
            self._renew()
            self._require_as_before()
        return _Tried(results, after)

    def _require_as_before(self) -> None:
        """Raise a DataError if a new server knows what an earlier one was told: an answer would hold what other tasks have done."""
        if left := [name for name, said in self._said().items() if said != self._before[name]]:
            what = f"a new start of it knows what was done before, as {left[0]} says: its state lies outside of it"
            raise DataError(what, self._server, "give a command that starts it with the same state each time")

    def _repeats(self, calls: Sequence[Call], tried: _Tried) -> bool:
        """Whether calls do the same again. It is tried once for the last call's tool."""
        name = calls[-1][0]
        if name not in self._repeated:
            self._repeated[name] = self._tried(calls) == tried
        return self._repeated[name]

    def _steady(self) -> dict[str, str]:
        """Return what readers say of a new server; those that say something else when asked again, as a clock does, are none."""
        first, again = self._said(), self._said()
        self._renew()
        return {name: said for name, said in self._said().items() if first[name] == again[name] == said}

    def _said(self) -> dict[str, str]:
        return {name: self._running.call(name, {}) for name in self._readers}

    def _renew(self) -> None:
        self.close()
        self._running = connected(self._server, _SECONDS, _MOST)
        self.callback(self._running.close)


def _drawn(tools: Sequence[ToolSpec], lot: random.Random) -> list[Call]:
    """Draw one to three calls; a later one may take the arguments of an earlier one, as the name of what that has made."""
    known: dict[str, Any] = {}
    calls: list[Call] = []
    for _ in range(lot.randint(1, _LONGEST)):
        tool = lot.choice(tools)
        arguments = _arguments(tool, known, lot)
        known |= arguments
        calls.append((tool.name, arguments))
    return calls


def _arguments(tool: ToolSpec, known: Mapping[str, Any], lot: random.Random) -> JsonObject:
    required = tool.parameters.get("required", ())
    chosen = [name for name in tool.arguments if name in required or lot.random() < 0.5]
    drawn = {name: _value(tool.arguments[name], lot) for name in chosen}
    again = {name: known[name] for name in drawn if name in known and lot.random() < 0.5}
    return drawn | again if not argument_error(tool.parameters, drawn | again) else drawn


def _value(schema: JsonObject, lot: random.Random) -> Any:
    """Draw a value that fits a schema, as far as a short look at it tells."""
    for field in ("enum", "examples"):
        if schema.get(field):
            return lot.choice(schema[field])
    if "const" in schema:
        return schema["const"]
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return _value(next((one for one in alternatives if one.get("type") != "null"), alternatives[0]), lot)
    kind = schema.get("type", "string")
    return _OF_TYPE.get(kind if isinstance(kind, str) else kind[0], _text)(schema, lot)


def _text(schema: JsonObject, lot: random.Random) -> str:
    return f"{lot.choice(_WORDS)} {lot.randint(1, 99)}"


def _whole(schema: JsonObject, lot: random.Random) -> int:
    least = int(schema.get("minimum", 1))
    return lot.randint(least, max(least, min(int(schema.get("maximum", least + 98)), least + 98)))


def _several(schema: JsonObject, lot: random.Random) -> list[Any]:
    least = schema.get("minItems", 1)
    return [_value(schema.get("items") or {}, lot) for _ in range(lot.randint(least, max(least, 3)))]


def _object(schema: JsonObject, lot: random.Random) -> JsonObject:
    return {name: _value(inner, lot) for name, inner in schema.get("properties", {}).items()}


_OF_TYPE: dict[str, Callable[[JsonObject, random.Random], Any]] = {
    "string": _text,
    "integer": _whole,
    "number": _whole,
    "boolean": lambda schema, lot: lot.random() < 0.5,
    "null": lambda schema, lot: None,
    "array": _several,
    "object": _object,
}


def _told(tool: ToolSpec, arguments: JsonObject) -> str:
    """Return what a call does, in the words of the tool's description, with its arguments by name."""
    first = re.split(r"(?<=[.!?])\s|\n", tool.description.strip(), maxsplit=1)[0] or tool.name.replace("_", " ").capitalize()
    told = ", ".join(f"{name} is {json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return f"{first.rstrip('.')}{f', where {told}' if told else ''}."
