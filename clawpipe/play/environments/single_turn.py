"""The base class of environments with one question and one answer: a first environment in twelve lines.

class Sums(SingleTurn[int]):
    name = "sums"
    weights = {"right": 1.0, "short": 0.2}

    def question(self, draw):
        a, b = draw.randint(1, 99), draw.randint(1, 99)
        return Question(f"{a} + {b} = ?", truth=a + b)

    def check(self, answer, truth):
        return {"right": str(truth) in answer, "short": len(answer) < 10}
"""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_up
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.errors import DataError
from clawpipe.play.environments.base import Outcome, TaskItem, question_item
from clawpipe.play.environments.split import heldout, is_heldout_split

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
_PLAIN = (str, int, float, bool, list, dict, Any)  # types of truths that are JSON as they are
_HELDOUT = 0.5  # share of the questions
_REPEATS = 1000  # draws in a row that gave no new question, after which there are taken to be no more


@dataclass(frozen=True)
class Question(Generic[T]):
    """A question with what is needed to check an answer.

    Attributes:
        text: the user message; two items with one text are one identity, so they are never on different sides of the split.
        truth: only `check` sees it; of the type that the environment is parametrised with.
        part: the slice that the gate looks at on its own.
    """

    text: str
    truth: T
    part: str = "all"


class SingleTurn(ABC, Generic[T]):
    """An environment of one user message and one reply. T, any type that pydantic can write as JSON, is that of the truth.

    Attributes:
        name, kind: see `Environment`.
        system: the system message of every episode; "": none.
        weights: of the rewards that `check` returns, by name. The first one decides success.
    """

    name: str
    kind: str = "chat"
    system: str = ""
    weights: Mapping[str, float] = {"right": 1.0}

    @abstractmethod
    def question(self, draw: random.Random) -> Question[T]:
        """Draw a question; `draw` is the only source of chance."""

    @abstractmethod
    def check(self, answer: str, truth: T) -> Mapping[str, float]:
        """Return a reward in [0, 1] for each name in `weights`."""

    def tools(self) -> list[ToolSpec]:
        """Return no tools."""
        return []

    def preamble(self) -> list[Message]:
        """Return the system message, if there is one."""
        return [Message("system", self.system)] if self.system else []

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return `count` different questions of a split; half of all questions are held out.

        Raises:
            ConfigError: no such split.
            DataError: there are fewer.
        """
        found = list(islice(self._questions(is_heldout_split(split), seed), count))
        if len(found) < count:
            raise DataError(f"{count} items wanted, {len(found)} found in {_REPEATS} draws", self.name, "ask for fewer items")
        return [self._item(split, ordinal, question) for ordinal, question in enumerate(found)]

    def start(self, item: TaskItem) -> OneReply:
        """Begin an episode, which ends after the policy's reply."""
        return OneReply()

    def verify(self, item: TaskItem, messages: Sequence[Message]) -> Outcome:
        """Return the weighted mean of the rewards as the value, and each of them as evidence; success: the first one is 1.

        Raises:
            ValueError: nothing was answered, or `check` returns other names than `weights`, or a reward outside of [0, 1].
        """
        if messages[-1].role != "assistant":
            raise ValueError("no answer")
        rewards = {name: float(value) for name, value in self.check(messages[-1].content, self._truth(item)).items()}
        if rewards.keys() != self.weights.keys() or not all(0 <= value <= 1 for value in rewards.values()):
            raise ValueError(f"check returned {rewards}: a reward in [0, 1] is wanted for each of {', '.join(self.weights)}")
        value = sum(self.weights[name] * reward for name, reward in rewards.items()) / sum(self.weights.values())
        first = next(iter(self.weights))
        success = rewards[first] == 1
        return Outcome(value, success, first if success else f"not {first}", rewards)

    def _questions(self, wanted: bool, seed: int) -> Iterator[Question[T]]:
        """Yield different questions on one side of the split; end after many draws without a new one."""
        seen: set[str] = set()
        repeats = 0
        for index in count_up():
            question = self.question(random.Random(f"{seed}/{index}"))
            repeats = repeats + 1 if question.text in seen else 0
            if repeats == _REPEATS:
                return
            if question.text not in seen and heldout(question.text, _HELDOUT) == wanted:
                yield question
            seen.add(question.text)

    def _item(self, split: str, ordinal: int, question: Question[T]) -> TaskItem:
        truth = {"truth": self._truths().dump_python(question.truth, mode="json")}
        text = question.text
        return question_item(self, split, ordinal, identity=text, part=question.part, question=text, truth=truth)

    def _truth(self, item: TaskItem) -> T:
        return self._truths().validate_python(json.loads(item.truth)["truth"], strict=False)

    @classmethod
    def _truths(cls) -> TypeAdapter[Any] | _AsItIs:
        """Return the adapter that writes and reads truths, for the type parameter of the class or of one of its bases."""
        bases = [base for parent in cls.__mro__ for base in getattr(parent, "__orig_bases__", ())]
        types = [get_args(base)[0] for base in bases if get_origin(base) is SingleTurn]
        kind = types[0] if types and not isinstance(types[0], TypeVar) else Any
        try:
            from pydantic import TypeAdapter
        except ModuleNotFoundError:  # in a Python of the environment's own
            if (get_origin(kind) or kind) not in _PLAIN:
                raise
            return _AsItIs()
        return TypeAdapter(kind)


class _AsItIs:
    """Writes and reads truths that are plain JSON."""

    def dump_python(self, truth: Any, mode: str) -> Any:
        return truth

    def validate_python(self, truth: Any, strict: bool) -> Any:
        return truth


class OneReply:
    """An episode that ends after the policy's reply."""

    def respond(self, messages: Sequence[Message]) -> list[Message] | None:
        """End the episode."""
        return None

    def close(self) -> None:
        """Nothing is open."""
