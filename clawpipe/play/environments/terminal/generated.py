"""Generated tasks as items: families take turns, and each number of a family is on one side of the split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Environment, Outcome, TaskItem, question_item
from clawpipe.play.environments.split import heldout, is_heldout_split, stable_hash
from clawpipe.play.environments.terminal.families import FAMILIES, NUMBERS, Task, make
from clawpipe.play.environments.terminal.files import Tree, equal, look, write
from clawpipe.play.environments.terminal.tasks import Place
from clawpipe.play.environments.world import Needs
from clawpipe.play.sandbox.base import Sandbox

_HELD_OUT = 0.5
_SALT = "terminal"


class GeneratedTasks:
    """Tasks of families.

    Args:
        families: names; empty: all.
        untrained: those of them that are on the held-out side alone.
        place: where they are done.

    Raises:
        ConfigError: no such family, or none is left to train on.
    """

    def __init__(self, families: Sequence[str], untrained: Sequence[str], place: Place) -> None:
        self._place = place
        if unknown := sorted({*families, *untrained} - FAMILIES.keys()):
            raise ConfigError(f"no family {unknown[0]!r}", "environment.options.families", f"choose among {', '.join(FAMILIES)}")
        self._heldout = [name for name in FAMILIES if not families or name in (*families, *untrained)]
        self._train = [name for name in self._heldout if name not in untrained]
        if not self._train:
            raise ConfigError("no family is left to train on", "environment.options.untrained", "leave one out of it")

    def items(self, environment: Environment, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return items, see `Environment.items`."""
        if count > (most := self.distinct_items(split)):
            raise DataError(f"{count} {split} items wanted, {most} to be had", environment.name, "ask for fewer items")
        drawn = islice(self._turns(split, count, seed), count)
        return [_item(environment, split, place, family, number) for place, (family, number) in enumerate(drawn)]

    def distinct_items(self, split: str) -> int:
        """Return the number of items."""
        families = self._families(split)
        return len(families) * min(len(_side(family, is_heldout_split(split))) for family in families)

    def warnings(self) -> list[str]:
        return []

    def place(self, truth: JsonObject) -> Place:
        return self._place

    def begin(self, sandbox: Sandbox, truth: JsonObject) -> None:
        write(sandbox, _task(truth).start)

    def progress(self, sandbox: Sandbox, truth: JsonObject) -> float:
        return judge(truth, _state(sandbox, truth)).value

    def evidence(self, sandbox: Sandbox, truth: JsonObject, needs: Needs) -> JsonObject:
        """Return what lies at the paths that count."""
        return {"files": dict(_state(sandbox, truth))}

    def judge(self, truth: JsonObject, evidence: JsonObject) -> Outcome:
        return judge(truth, evidence["files"])

    def solution(self, truth: JsonObject) -> Sequence[str]:
        return _task(truth).solution

    def _families(self, split: str) -> list[str]:
        return self._heldout if is_heldout_split(split) else self._train

    def _turns(self, split: str, count: int, seed: int) -> Iterator[tuple[str, int]]:
        families = self._families(split)
        orders = [_ordered(family, is_heldout_split(split), seed) for family in families]
        for place in range(-(-count // len(families))):
            yield from ((family, order[place]) for family, order in zip(families, orders, strict=True))


def _task(truth: JsonObject) -> Task:
    return make(truth["family"], truth["number"])


def _state(sandbox: Sandbox, truth: JsonObject) -> Tree:
    return look(sandbox, [*truth["wanted"], *truth["kept"]])


def judge(truth: JsonObject, found: Tree) -> Outcome:
    """Return the outcome: the share of wanted paths that are as wanted; 0 where something was changed that has to stay."""
    broken = [path for path, entry in truth["kept"].items() if not equal(found.get(path), entry)]
    missed = [path for path, entry in truth["wanted"].items() if not equal(found.get(path), entry)]
    value = 0.0 if broken else 1 - len(missed) / len(truth["wanted"])
    reason = f"changed: {broken[0]}" if broken else f"not as wanted: {missed[0]}" if missed else "as wanted"
    return Outcome(value, value == 1.0, reason, {"broken": broken, "missed": missed})


def _item(environment: Environment, split: str, place: int, family: str, number: int) -> TaskItem:
    task = make(family, number)
    kept = {path: task.start[path] for path in task.kept}
    truth = {"family": family, "number": number, "wanted": dict(task.wanted), "kept": kept}
    identity = f"{family}/{number}"
    return question_item(environment, split, place, identity=identity, part=family, question=task.instruction, truth=truth)


@lru_cache(maxsize=256)
def _side(family: str, wanted: bool) -> tuple[int, ...]:
    return tuple(number for number in range(NUMBERS) if heldout(f"{family}/{number}", _HELD_OUT, _SALT) == wanted)


@lru_cache(maxsize=256)
def _ordered(family: str, wanted: bool, seed: int) -> tuple[int, ...]:
    return tuple(sorted(_side(family, wanted), key=lambda number: stable_hash(f"{seed}/{family}/{number}")))
