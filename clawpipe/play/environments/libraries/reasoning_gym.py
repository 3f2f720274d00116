"""`reasoning-gym:NAME[=WEIGHT],...`: questions of reasoning-gym's generators, at levels of difficulty, scored by the library."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import count as count_up
from typing import Any

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError
from clawpipe.play.environments.base import Hindsight, Outcome, TaskItem, Verdict
from clawpipe.play.environments.libraries.common import LibraryEnvironment, first, imported
from clawpipe.play.environments.single_turn import OneReply
from clawpipe.play.environments.split import heldout, is_heldout_split

_NAME = "environment.name"
_REPEATS = 1000  # questions in a row that were known, after which there are taken to be no more
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class ReasoningGym(LibraryEnvironment):
    """Questions of reasoning-gym's generators, one or a mix; what stands in <answer> tags is the answer, else the whole reply.

    Args:
        word: a generator, or several with their weights: `chain_sum=3,leg_counting=1`.
        levels: of difficulty, as the library's curriculum of each generator has them: 3 are the three lowest; 0: none.
        config: arguments of generators, by name.
        system: system message of every episode; "": none.
        reward: of an answer: {"lowest": 0, "highest": 1, "success": 1}.
    """

    library = name = "reasoning-gym"

    def __init__(
        self,
        word: str,
        levels: int = 0,
        config: Mapping[str, Options] = {},
        system: str = "Answer with the result and nothing else.",
        reward: Mapping[str, float] = {},
    ) -> None:
        super().__init__(word, reward, system)
        self._gym = imported(self.library, "reasoning_gym")
        self._weights = _weights(word)
        self._levels = [*range(levels)] or [None]
        self._config = dict(config)
        for name in self._weights:
            self._require(name)
        self._entry = cache(self._made)

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return different questions: of each generator by its weight, of all its levels. Raises as `Environment.items`."""
        found = first(self._found(split, seed), count, self.name)
        return [self.placed(item, split, place) for place, item in enumerate(found)]

    def start(self, item: TaskItem) -> OneReply:
        return OneReply()

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None = None) -> Outcome:
        """Return what the library's generator says of the answer.

        Raises:
            ValueError: nothing was answered, or this version of the library asks something else.
        """
        if messages[-1].role != "assistant":
            raise ValueError("no answer")
        dataset, entry = self._known(item)
        answer = _answer(messages[-1].content)
        reward = float(dataset.score_answer(answer, entry))
        return self._scale.outcome(reward, Verdict({"reward": reward, "answer": answer}))

    def hindsight(self, item: TaskItem, messages: Sequence[Message]) -> Hindsight | None:
        """Return the generator's own answer, if it has one."""
        answer = self._known(item)[1]["answer"]
        return Hindsight((f"The answer is {answer}.",), (Message("assistant", str(answer)),)) if answer is not None else None

    def _found(self, split: str, seed: int) -> Iterator[TaskItem]:
        wanted, seen, repeats = is_heldout_split(split), set[str](), 0
        for place in count_up():
            item = self._drawn(random.Random(f"{seed}/{place}"))
            repeats = repeats + 1 if item.identity in seen else 0
            if repeats == _REPEATS:
                return
            if item.identity not in seen and heldout(item.identity, 0.5) == wanted:
                yield item
            seen.add(item.identity)

    def _drawn(self, lot: random.Random) -> TaskItem:
        [name] = lot.choices([*self._weights], [*self._weights.values()])
        level, seed = lot.choice(self._levels), lot.randrange(2**31)
        question = self._entry(name, level, seed)[1]["question"]
        part = name if level is None else f"{name}/level-{level + 1}"
        return self.item(question, [Message("user", question)], {"name": name, "level": level, "seed": seed}, part)

    def _known(self, item: TaskItem) -> tuple[Any, JsonObject]:
        truth = json.loads(item.truth)
        dataset, entry = self._entry(truth["name"], truth["level"], truth["seed"])
        if entry["question"] != item.messages[-1].content:
            raise ValueError("this version of reasoning-gym asks something else with the item's seed")
        return dataset, entry

    def _made(self, name: str, level: int | None, seed: int) -> tuple[Any, JsonObject]:
        """Return a generator of one question, and the question."""
        given = {**self._config.get(name, {}), "seed": seed, "size": 1}
        dataset = self._gym.create_dataset(name, **(given if level is None else vars(self._at_level(name, level, given))))
        return dataset, dataset[0]

    def _at_level(self, name: str, level: int, given: Options) -> Any:
        """Return a generator's configuration at one level of all that its curriculum varies, and no lower one."""
        coaching = imported(self.library, "reasoning_gym.coaching.base_curriculum")
        curriculum = self._gym.factory.create_curriculum(name)
        curriculum.set_global_level(level)
        only = coaching.DefaultCurriculumContext(mode=coaching.RangeAttributeMode.UPPER_BOUND)
        return curriculum.generate_configuration(given, only)

    def _require(self, name: str) -> None:
        """Check a generator's name, its levels, and its arguments."""
        factory = self._gym.factory
        if name not in factory.DATASETS:
            near = ", ".join(get_close_matches(name, [*factory.DATASETS], 3, 0.0))
            raise ConfigError(f"reasoning-gym has no generator {name!r}", _NAME, f"near to it are {near}")
        if self._levels != [None] and not factory.has_curriculum(name):
            raise ConfigError(f"reasoning-gym has no levels of {name}", "environment.options.levels", "set it to 0")
        try:
            self._made(name, self._levels[-1], 0)
        except Exception as error:  # whatever its configuration does not take
            what = " ".join(str(error).split())
            raise ConfigError(
                f"{name}: {what}", f"environment.options.config.{name}", "see the generator's configuration"
            ) from None


def _weights(word: str) -> dict[str, float]:
    """Return the generators that a name lists, with their weights.

    Raises:
        ConfigError: a weight is no number above 0, or one generator stands there twice.
    """
    weights: dict[str, float] = {}
    for part in word.split(","):
        name, _, weight = part.strip().partition("=")
        if not re.fullmatch(r"(\d+(\.\d+)?)?", weight) or (weight and not float(weight)) or name in weights:
            raise ConfigError(
                f"{part.strip()!r} is no generator with a weight", _NAME, "write reasoning-gym:chain_sum=2,leg_counting=1"
            )
        weights[name] = float(weight or 1)
    return weights


def _answer(reply: str) -> str:
    tagged = _TAGGED.findall(reply)
    return (tagged[-1] if tagged else reply).strip()
