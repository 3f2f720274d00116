"""`gymnasium:ID`: environments of gymnasium whose observations and actions can be written as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clawpipe.core.basics.json_types import Options
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError
from clawpipe.play.environments.base import Answer, Reason, TaskItem, Verdict
from clawpipe.play.environments.libraries.common import LibraryEnvironment, Tally, first, imported, numbers, text_of

_MARKED = re.compile(r"\x1b\[[0-9;]+m(.+?)\x1b\[0?m")  # what a picture of letters highlights
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_TRIED = 8  # seeds that say whether episodes begin alike
_WORDS = "environment.options.actions"


class Gymnasium(LibraryEnvironment):
    """An environment of gymnasium: the policy reads observations as text, and answers with actions.

    Args:
        word: the id, such as FrozenLake-v1; `module:ID` imports a module first that registers it.
        make: arguments of `gymnasium.make`.
        actions: words for the actions 0, 1, and so on, of which a reply's last one counts; none: they are numbers.
        system: system message of every episode; "": one that says how to answer.
        reward: of an episode, all rewards of its steps: {"lowest": 0, "highest": 1, "success": 1}.
    """

    library = name = "gymnasium"

    def __init__(
        self,
        word: str,
        make: Mapping[str, Any] = {},
        actions: Sequence[str] = (),
        system: str = "",
        reward: Mapping[str, float] = {},
    ) -> None:
        super().__init__(word, reward, system)
        self._gym = imported(self.library, "gymnasium")
        self._id, self._options = word, dict(make)
        world = self._made(word)
        self._options |= _as_text(world.metadata, self._options)
        self._action, how = _reader(world.action_space, actions)
        self._system = self._system or how
        world.close()

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return items, each a seed with its first observation. Raises as `Environment.items`."""
        world = self._world()
        found = ((number, observed(world, *world.reset(seed=number))) for number in numbers(split, seed))
        items = [
            self.item(str(number), [Message("user", text)], {"seed": number}) for number, text in first(found, count, self.name)
        ]
        world.close()
        return [self.placed(item, split, place) for place, item in enumerate(items)]

    def distinct_items(self, split: str) -> int | None:
        """Return None: there are as many as there are seeds."""
        return None

    def warnings(self) -> list[str]:
        """Return a sentence where all seeds begin alike, since held-out episodes may then be the same task."""
        texts = {item.messages[-1].content for item in self.items("heldout", _TRIED, 0)}
        return (
            [f"{self.name} begins alike with every seed, so held-out episodes may be the trained ones"] if len(texts) == 1 else []
        )

    def start(self, item: TaskItem) -> GymEpisode:
        """Begin an episode from the item's seed.

        Raises:
            ValueError: the seed gives another first observation than when the item was made.
        """
        world = self._world()
        text = observed(world, *world.reset(seed=json.loads(item.truth)["seed"]))
        if text != item.messages[-1].content:
            raise ValueError(f"{self._id} does not begin alike with one seed")
        return GymEpisode(world, self._action, Tally(self._scale.lowest))

    def _world(self) -> Any:
        return self._gym.make(self._id, **self._options)

    def _made(self, word: str) -> Any:
        try:
            return self._world()
        except (self._gym.error.Error, ImportError, TypeError) as error:
            what = _ESCAPE.sub("", " ".join(str(error).split()))
            fix = "set environment.options.make" if isinstance(error, TypeError) else "see gymnasium.pprint_registry()"
            raise ConfigError(f"gymnasium cannot make it: {what}", word, fix) from None


class GymEpisode:
    """An episode of one world, which is over when that has ended."""

    def __init__(self, world: Any, action: Callable[[str], Any], tally: Tally) -> None:
        self._world, self._action, self._tally = world, action, tally

    def respond(self, messages: Sequence[Message]) -> Answer:
        """Take the action that the policy names; one that the world does not have is answered."""
        try:
            action = self._action(text_of(messages[-1]))
        except ValueError as error:
            return self._tally.refused(error)
        try:
            observation, reward, terminated, truncated, told = self._world.step(action)
        except Exception as error:  # many worlds take text beyond their own space, which only says whose fault this is
            if self._world.action_space.contains(action):
                raise
            return self._tally.refused(error)
        return self._tally.step(observed(self._world, observation, told), float(reward), bool(terminated or truncated))

    def finish(self, reason: Reason) -> Verdict:
        return self._tally.verdict()

    def close(self) -> None:
        self._world.close()


def observed(world: Any, observation: Any, told: Any) -> str:
    """Return what the policy sees: text as it is, else the world as letters where it can be drawn, else numbers."""
    if isinstance(observation, str):
        return observation
    if world.render_mode == "ansi":
        return _ESCAPE.sub("", _MARKED.sub(r"[\1]", str(world.render()))).strip("\n")
    return json.dumps(_plain(observation))


def _plain(value: Any) -> Any:
    """Return an observation as JSON."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _as_text(metadata: Options, given: Options) -> Options:
    drawn = "ansi" in (metadata.get("render_modes") or ()) and "render_mode" not in given
    return {"render_mode": "ansi"} if drawn else {}


def _reader(space: Any, words: Sequence[str]) -> tuple[Callable[[str], Any], str]:
    """Return the function that reads an action from a reply, and how to answer.

    Raises:
        ConfigError: actions are neither text nor one of a few.
    """
    match type(space).__name__:
        case "Text":
            return str.strip, "Answer with your action and nothing else."
        case "Discrete" if words and len(words) != space.n:
            raise ConfigError(f"there are {space.n} actions, not {len(words)}", _WORDS, "name each, the action 0 first")
        case "Discrete" if words:
            return _Words(words, int(space.start)), f"Answer with one of: {', '.join(words)}."
        case "Discrete":
            least, most = int(space.start), int(space.start + space.n - 1)
            return _Number(least, most), f"Answer with the number of an action, from {least} to {most}."
        case other:
            raise ConfigError(
                f"its actions are a {other}, which is neither text nor one of a few", "environment.name", "take another"
            )


class _Number:
    """Reads the last number of a reply."""

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most

    def __call__(self, text: str) -> int:
        found = re.findall(r"-?\d+", text)
        if not found or not self._least <= int(found[-1]) <= self._most:
            raise ValueError(f"answer with a number from {self._least} to {self._most}")
        return int(found[-1])


class _Words:
    """Reads the last word of a reply that is an action's."""

    def __init__(self, words: Sequence[str], start: int) -> None:
        self._words, self._start = [word.casefold() for word in words], start
        names = "|".join(sorted(map(re.escape, self._words), key=len, reverse=True))
        self._pattern = re.compile(rf"(?<!\w)(?:{names})(?!\w)")

    def __call__(self, text: str) -> int:
        found = self._pattern.findall(text.casefold())
        if not found:
            raise ValueError(f"answer with one of: {', '.join(self._words)}")
        return self._start + self._words.index(found[-1])
