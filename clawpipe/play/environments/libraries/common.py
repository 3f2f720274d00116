"""What environments of other libraries have in common. It needs the standard library alone, as all that is beside it."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count as count_up
from itertools import islice
from types import ModuleType
from typing import Any

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.core.store.plain_digests import sha256_plain
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Answer, Kind, Outcome, TaskItem, Verdict
from clawpipe.play.environments.libraries.naming import install_words, name_of
from clawpipe.play.environments.split import heldout, is_heldout_split, stable_hash

_SHARE = 0.5  # of seeds that are held out
_NUMBERS = 2**31  # which every library takes as a seed


def imported(library: str, module: str) -> ModuleType:
    """Import a library.

    Raises:
        ConfigError: this Python lacks it, or something that it imports; or it raises.
    """
    install = f"{sys.executable} -m pip install {install_words(library)}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"this Python has no {error.name}: {sys.executable}", library, f"{install}, or set environment.python"
        ) from None
    except Exception as error:
        what = " ".join(str(error).split())
        raise ConfigError(f"{module} raises when it is imported: {type(error).__name__}: {what}", library, install) from error


@dataclass(frozen=True)
class Scale:
    """How a library's rewards become values from 0 to 1.

    Attributes:
        lowest, highest: rewards of the values 0 and 1; those beyond them are worth the same.
        success: least reward of an episode that succeeded; None: the highest.
    """

    lowest: float = 0.0
    highest: float = 1.0
    success: float | None = None

    @classmethod
    def of(cls, given: Mapping[str, float]) -> Scale:
        """Return the scale that an option describes.

        Raises:
            ConfigError: it has other fields, or its highest reward is not above its lowest.
        """
        names = [field.name for field in fields(cls)]
        if unknown := given.keys() - names:
            raise ConfigError(f"a reward has no {min(unknown)}", "environment.options.reward", f"it has {', '.join(names)}")
        scale = cls(**given)
        if not scale.highest > scale.lowest:
            raise ConfigError("the highest reward is not above the lowest", "environment.options.reward", "say both")
        return scale

    def outcome(self, reward: float, verdict: Verdict) -> Outcome:
        """Return the outcome of an episode with this reward."""
        value = (reward - self.lowest) / (self.highest - self.lowest)
        success = reward >= (self.highest if self.success is None else self.success)
        return Outcome(min(max(value, 0.0), 1.0), success, f"reward {reward:g}", verdict.evidence)


class LibraryEnvironment:
    """The members that environments of other libraries share: no tools, and a verifier that reads the recorded reward.

    Args:
        word: what the library calls its environment.
        reward: the scale of its rewards, see `Scale`.
        system: system message of every episode; "": none.

    Attributes:
        library: its name before the colon.
    """

    library: str
    name: str
    kind: Kind = "chat"

    def __init__(self, word: str, reward: Mapping[str, float], system: str) -> None:
        self.name = name_of(self.library, word)
        self._scale, self._system = Scale.of(reward), system

    def tools(self) -> list[ToolSpec]:
        return []

    def preamble(self) -> list[Message]:
        """Return the system message, if there is one."""
        return [Message("system", self._system)] if self._system else []

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None = None) -> Outcome:
        """Return the outcome of the reward that the library gave while the episode was played.

        Raises:
            ValueError: none is recorded, or it is no number.
        """
        reward = verdict.evidence.get("reward") if verdict else None
        if verdict is None or not isinstance(reward, int | float) or not math.isfinite(reward):
            raise ValueError(f"{self.library} gave no reward")
        return self._scale.outcome(self._scale.lowest if self._dodged(verdict) else reward, verdict)

    def _dodged(self, verdict: Verdict) -> bool:
        """Whether an episode did not end, where steps cost something, and some replies were no action, which costs nothing."""
        evidence = verdict.evidence
        return self._scale.lowest < 0 and bool(evidence.get("refused")) and not evidence.get("ended")

    def item(self, identity: str, messages: Sequence[Message], truth: Any, part: str = "all") -> TaskItem:
        """Return an item without a side and a place, which `placed` gives it."""
        item_id = sha256_plain([self.name, identity, [message.content for message in messages]])[:16]
        return TaskItem(item_id, identity, self.name, self.kind, "", part, tuple(messages), json.dumps(truth, sort_keys=True), 0)

    def placed(self, item: TaskItem, split: str, place: int) -> TaskItem:
        """Return an item with its side and its place there."""
        return replace(item, split=split, ordinal=place)


class Tally:
    """Counts what the steps of an episode were worth, for worlds that a reply which is no action leaves as it was.

    Args:
        lowest: of the scale; no step is taken to be worth less.
    """

    def __init__(self, lowest: float) -> None:
        self._reward, self._steps, self._refused, self._ended = 0.0, 0, 0, False
        self._least = min(lowest, 0.0)

    def step(self, seen: str, reward: float, ended: bool) -> Answer:
        """Return the answer to an action."""
        self._reward, self._steps, self._ended = self._reward + reward, self._steps + 1, ended
        self._least = min(self._least, reward)
        return Answer([Message("user", seen)], reward, ended)

    def refused(self, error: Exception) -> Answer:
        """Return the answer to a reply that is no action: its turn is worth what the worst step is, so that it saves no cost."""
        self._refused += 1
        return Answer([Message("user", f"error: {' '.join(str(error).split())}")], self._least)

    def verdict(self) -> Verdict:
        return Verdict({"reward": self._reward, "steps": self._steps, "refused": self._refused, "ended": self._ended})


def sided(items: Iterable[TaskItem], share: float) -> dict[str, list[TaskItem]]:
    """Return a library's items by their side of the split; of equal ones the first.

    Raises:
        ConfigError: the share is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise ConfigError(f"{share} is no share of tasks", "environment.options.share", "give a number between 0 and 1")
    sides: dict[str, dict[str, TaskItem]] = {"train": {}, "heldout": {}}
    for item in items:
        sides["heldout" if heldout(item.identity, share) else "train"].setdefault(item.item_id, item)
    return {side: list(there.values()) for side, there in sides.items()}


def chosen(sides: Mapping[str, Sequence[TaskItem]], split: str, count: int, seed: int, name: str) -> list[TaskItem]:
    """Return `count` items of a side, in an order that the seed decides.

    Raises:
        ConfigError: no such side.
        DataError: it has fewer.
    """
    is_heldout_split(split)
    return first(iter(sorted(sides[split], key=lambda item: stable_hash(f"{seed}/{item.item_id}"))), count, name)


def numbers(split: str, seed: int) -> Iterator[int]:
    """Yield seeds of a library's episodes on one side of the split, without end and without repetition."""
    wanted, seen = is_heldout_split(split), set[int]()
    for place in count_up():
        number = stable_hash(f"{seed}/{place}") % _NUMBERS
        if number not in seen and heldout(str(number), _SHARE) == wanted:
            seen.add(number)
            yield number


def first(found: Iterator[Any], count: int, name: str) -> list[Any]:
    """Return the first `count` of what is found.

    Raises:
        DataError: there are fewer.
    """
    there = list(islice(found, count))
    if len(there) < count:
        raise DataError(f"{count} items wanted, there are {len(there)}", name, "ask for fewer items")
    return there


def text_of(message: Message) -> str:
    """Return what the policy has said, with its calls as it could have written them."""
    return "\n".join(filter(None, [message.content, *map(_written, message.tool_calls)]))


def _written(call: ToolCall) -> str:
    whole = f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}'
    return call.arguments if call.malformed else f"<tool_call>{whole}</tool_call>"
