"""`stories`: sums told as short stories, such as grade-school problems are, in one to four steps; the answer is a whole number."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError
from clawpipe.play.environments.answers import last_number
from clawpipe.play.environments.base import Hindsight, TaskItem
from clawpipe.play.environments.single_turn import Question, SingleTurn

_LEVELS = 4  # steps of the longest story
_MOST = 500  # that a story's number grows to
_NAMES = ("Ada", "Ben", "Chloe", "Dmitri", "Eve", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Kira", "Leo", "Mara", "Nils", "Olga")
_THINGS = ("apples", "beads", "books", "buttons", "cards", "coins", "eggs", "marbles", "pens", "shells", "stamps", "stones")


class Step(NamedTuple):
    """One thing that happens in a story.

    Attributes:
        told: as a sentence, without the name.
        sum: as arithmetic, e.g. "5 + 3".
        left: the number afterwards.
    """

    told: str
    sum: str
    left: int


def _gets(number: int, thing: str, lot: random.Random) -> Step:
    more = lot.randint(2, 40)
    return Step(f"gets {more} more {thing}", f"{number} + {more}", number + more)


def _gives(number: int, thing: str, lot: random.Random) -> Step | None:
    if number < 3:
        return None
    less = lot.randint(1, number - 1)
    return Step(f"gives {less} {thing} away", f"{number} - {less}", number - less)


def _fills_bags(number: int, thing: str, lot: random.Random) -> Step:
    bags, each = lot.randint(2, 6), lot.randint(2, 9)
    return Step(f"buys {bags} bags with {each} {thing} each", f"{number} + {bags} * {each}", number + bags * each)


def _doubles(number: int, thing: str, lot: random.Random) -> Step:
    times = lot.randint(2, 4)
    words = {2: "twice", 3: "three times", 4: "four times"}[times]
    return Step(f"then has {words} as many {thing} as before", f"{number} * {times}", number * times)


def _shares(number: int, thing: str, lot: random.Random) -> Step | None:
    parts = [part for part in range(2, 7) if number % part == 0]
    if not parts:
        return None
    part = lot.choice(parts)
    return Step(f"shares the {thing} equally among {part} people, of whom one is the owner", f"{number} / {part}", number // part)


_STEPS: tuple[Callable[[int, str, random.Random], Step | None], ...] = (_gets, _gives, _fills_bags, _doubles, _shares)


class StoriesEnvironment(SingleTurn[dict[str, object]]):
    """The policy computes what a short story asks; the last number of its reply counts, and has to be right exactly.

    Args:
        levels: of difficulty, from 1 to 4: the number of steps of the longest story.
    """

    name = "stories"
    kind = "chat"
    system = "Work it out step by step, and end with: The answer is N."
    weights: Mapping[str, float] = {"right": 1.0}

    def __init__(self, levels: int = 3) -> None:
        if not 1 <= levels <= _LEVELS:
            raise ConfigError(f"there are no {levels} levels", "environment.options.levels", f"give a number from 1 to {_LEVELS}")
        self._levels = levels

    def question(self, draw: random.Random) -> Question[dict[str, object]]:
        level, name, thing = draw.randint(1, self._levels), draw.choice(_NAMES), draw.choice(_THINGS)
        number = draw.randint(3, 60)
        steps = _steps(number, thing, level, draw)
        told = " ".join(f"{name} {step.told}." for step in steps)
        text = f"{name} has {number} {thing}. {told} How many {thing} does {name} have in the end?"
        return Question(
            text, {"answer": steps[-1].left, "sums": [f"{step.sum} = {step.left}" for step in steps]}, f"story/level-{level}"
        )

    def check(self, answer: str, truth: dict[str, object]) -> Mapping[str, float]:
        return {"right": float(last_number(answer) == truth["answer"])}

    def distinct_items(self, split: str) -> int | None:
        """Return None: there are hundreds of thousands of stories of each level."""
        return None

    def hindsight(self, item: TaskItem, messages: Sequence[Message]) -> Hindsight:
        """Return the sums of the story, one after another."""
        truth = json.loads(item.truth)["truth"]
        worked = f"{' '.join(f'{one}.' for one in truth['sums'])} The answer is {truth['answer']}."
        return Hindsight((f"The sums are {', then '.join(truth['sums'])}.",), (Message("assistant", worked),))


def _steps(number: int, thing: str, count: int, lot: random.Random) -> list[Step]:
    """Return what happens in a story, no two like steps in a row."""
    steps: list[Step] = []
    before = None
    while len(steps) < count:
        kind = lot.choice([one for one in _STEPS if one is not before])
        step = kind(number, thing, lot)
        if step is not None and step.left <= _MOST:
            steps.append(step)
            number, before = step.left, kind
    return steps
