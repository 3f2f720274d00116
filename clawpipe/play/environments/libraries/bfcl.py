"""`bfcl:CATEGORY`: the multi-turn categories of the Berkeley Function Calling Leaderboard, version 4."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count as count_up
from pathlib import Path
from types import ModuleType
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.errors import ConfigError
from clawpipe.play.environments.base import Answer, Kind, Reason, TaskItem, Verdict
from clawpipe.play.environments.libraries.common import LibraryEnvironment, chosen, imported, sided

_CATEGORIES = ("multi_turn_base", "multi_turn_miss_param", "multi_turn_long_context")
_MAIN = ("GorillaFileSystem", "TradingBot", "VehicleControlAPI", "TravelAPI")  # each task is about one of them
_STEPS = 20  # replies with calls to one message of the user, beyond which the leaderboard ends an episode
_CHECKER = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
_EXECUTOR = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils"
_BACKENDS = "bfcl_eval.constants.executable_backend_config"
_TYPES = "bfcl_eval.constants.type_mappings"
_NUMBERS = count_up()


class Bfcl(LibraryEnvironment):
    """Conversations of several requests to programs that really run; the state that calls leave and what they return are compared.

    Args:
        word: multi_turn_base, multi_turn_miss_param or multi_turn_long_context.
        classes: programs on offer, such as [GorillaFileSystem, MathAPI]; the tasks are those that need no other. Without any: all
            eight, whose tools take about 25,000 tokens.
        share: of the tasks that are held out, in (0, 1).
        system: system message of every episode; "": none.
    """

    library = name = "bfcl"
    kind: Kind = "tool-call"

    def __init__(self, word: str, classes: Sequence[str] = (), share: float = 0.5, system: str = "") -> None:
        super().__init__(word, {}, system)
        if word not in _CATEGORIES:
            raise ConfigError(f"bfcl has no category {word!r} that is played", word, f"it has {', '.join(_CATEGORIES)}")
        self._backends = imported(self.library, _BACKENDS)
        self._classes = _known(classes, self._backends)
        self._tasks = {task["id"]: task for task in _lines(_data(self._backends, f"BFCL_v4_{word}.json"))}
        answers = _lines(_data(self._backends, f"possible_answer/BFCL_v4_{word}.json"))
        self._right: dict[str, list[list[str]]] = {answer["id"]: answer["ground_truth"] for answer in answers}
        wanted = [task for task in self._tasks.values() if self._classes.issuperset(task["involved_classes"])]
        self._sides = sided(map(self._item_of, wanted), share)

    def tools(self) -> list[ToolSpec]:
        """Return the tools of the classes on offer."""
        return [tool for name in sorted(self._classes) for tool in self._of_class[name]]

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return tasks of a side of the split, in an order that the seed decides. Raises as `Environment.items`."""
        return [self.placed(item, split, place) for place, item in enumerate(chosen(self._sides, split, count, seed, self.name))]

    def distinct_items(self, split: str) -> int:
        """Return the number of tasks on a side of the split."""
        return len(self._sides[split])

    def start(self, item: TaskItem) -> BfclEpisode:
        """Begin an episode: programs in the state that the task describes."""
        task = self._tasks[json.loads(item.truth)["id"]]
        withheld = task.get("excluded_function", ())
        own = [tool for name in task["involved_classes"] for tool in self._of_class[name] if tool.name not in withheld]
        return BfclEpisode(task, self._right[task["id"]], own)

    @cached_property
    def _of_class(self) -> dict[str, list[ToolSpec]]:
        files = self._backends.MULTI_TURN_FUNC_DOC_FILE_MAPPING
        types = imported(self.library, _TYPES).GORILLA_TO_OPENAPI
        documents = {name: _lines(_data(self._backends, f"multi_turn_func_doc/{files[name]}")) for name in self._classes}
        return {
            name: [ToolSpec(one["name"], one["description"], _schema(one["parameters"], types)) for one in lines]
            for name, lines in documents.items()
        }

    def _item_of(self, task: JsonObject) -> TaskItem:
        """Return a task's item. The categories vary the same conversations, so their number alone is the identity."""
        number = task["id"].rpartition("_")[2]
        about = next(name for name in _MAIN if name in task["involved_classes"])
        return self.item(number, _asked(task["question"][0]), {"id": task["id"]}, about)


class BfclEpisode:
    """One conversation, whose calls the library executes.

    Args:
        task: a line of the library's file.
        right: its calls for each message of the user.
        tools: those that may be called.
    """

    def __init__(self, task: JsonObject, right: list[list[str]], tools: Sequence[ToolSpec]) -> None:
        self._task, self._right = task, right
        self._fields = {tool.name: tool.parameters["properties"].keys() for tool in tools}
        self._turns: list[list[list[str]]] = [[]]  # the calls of each reply to each message of the user
        self._over = False
        # The library keeps programs by the name of a model, which is one episode here.
        self._name = f"episode_{next(_NUMBERS)}"
        self._executor = imported("bfcl", _EXECUTOR)

    def respond(self, messages: Sequence[Message]) -> Answer:
        """Execute the calls of a reply; one without calls ends what the user has asked, and the next message follows."""
        calls = messages[-1].tool_calls
        if not calls:
            return self._next()
        if len(self._turns[-1]) == _STEPS:
            return Answer(done=True)
        return Answer(self._executed(calls))

    def finish(self, reason: Reason) -> Verdict:
        """Return what the library's own checker says of all calls; a conversation that was not led to its end has failed."""
        told = self._checked() if self._over else {"valid": False, "error_type": "multi_turn:force_terminated"}
        evidence: JsonObject = {"reward": float(told["valid"]), "calls": self._turns}
        return Verdict(evidence if told["valid"] else evidence | {"error": told["error_type"]})

    def close(self) -> None:
        """Remove the programs of this episode, which the library would keep."""
        kept = vars(self._executor)
        for name in [name for name in kept if name.startswith(f"{self._name}_")]:
            del kept[name]

    def _next(self) -> Answer:
        asked = self._task["question"]
        if len(self._turns) == len(asked):
            self._over = True
            return Answer(done=True)
        self._turns.append([])
        return Answer(_asked(asked[len(self._turns) - 1]))

    def _executed(self, calls: Sequence[ToolCall]) -> list[Message]:
        wrong = [self._mistake(call) for call in calls]
        written = [_written(call) for call, mistake in zip(calls, wrong, strict=True) if not mistake]
        results = iter(self._run(written) if written else ())
        self._turns[-1].append(written)
        return [
            Message("tool", f"error: {mistake}" if mistake else next(results), (), call.id, call.name)
            for call, mistake in zip(calls, wrong, strict=True)
        ]

    def _run(self, written: list[str]) -> list[str]:
        task, long = self._task, "long_context" in self._task["id"]
        done = self._executor.execute_multi_turn_func_call(
            written, task["initial_config"], task["involved_classes"], self._name, task["id"], long_context=long
        )
        return done[0]

    def _mistake(self, call: ToolCall) -> str:
        """Return why a call is not handed to the library, which evaluates it as Python; "" if it may be."""
        if call.malformed:
            return "the arguments are no JSON object"
        if call.name not in self._fields:
            return f"there is no tool {call.name!r} here"
        unknown = json.loads(call.arguments).keys() - self._fields[call.name]
        return f"{call.name} does not take {min(unknown)!r}" if unknown else ""

    def _checked(self) -> JsonObject:
        checker = imported("bfcl", _CHECKER)
        turns = [[calls for calls in replies if calls] for replies in self._turns]
        return checker.multi_turn_checker(turns, self._right, self._task, self._task["id"].rpartition("_")[0], self._name)


def _written(call: ToolCall) -> str:
    """Return a call as the library reads it. Values are JSON's, so that their `repr` is a literal."""
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in json.loads(call.arguments).items())})"


def _known(classes: Sequence[str], backends: ModuleType) -> set[str]:
    """Return the classes on offer; without any, those that the tasks use.

    Raises:
        ConfigError: the library has no such class.
    """
    there = [name for name in backends.MULTI_TURN_FUNC_DOC_FILE_MAPPING if not name.startswith(("WebSearch", "Memory"))]
    if unknown := set(classes) - set(there):
        raise ConfigError(f"bfcl has no class {min(unknown)!r}", "environment.options.classes", f"it has {', '.join(there)}")
    return set(classes or there)


def _data(backends: ModuleType, name: str) -> Path:
    return Path(str(backends.__file__)).parents[1] / "data" / name


def _lines(file: Path) -> list[JsonObject]:
    return [json.loads(line) for line in file.read_text().splitlines() if line.strip()]


def _asked(turn: Sequence[JsonObject]) -> list[Message]:
    return [Message(one["role"], one["content"]) for one in turn]


def _schema(described: JsonObject, types: dict[str, str]) -> JsonObject:
    """Return the library's description of parameters as a JSON Schema."""
    return dict(_fields(described, types))


def _fields(described: JsonObject, types: dict[str, str]) -> Iterator[tuple[str, Any]]:
    for key, value in described.items():
        match key, value:
            case "type", str():
                yield key, types[value]
            case "properties", dict():
                yield key, {name: _schema(inner, types) for name, inner in value.items()}
            case "items", dict():
                yield key, _schema(value, types)
            case _:
                yield key, value
