"""`tastes`: five simulated people ask questions. Each prefers one kind of answer, and says so only after the first answer.

    user       Ada here. What is an iron kettle for?
    assistant  An iron kettle is a vessel in which people have boiled water over a fire for centuries, and ...
    user       No, I asked for something short. Ada again. Where would I keep an oak table?
    assistant  In the dining room.

A first answer is to somebody's taste only if the policy knows the person, so success is what a policy has learnt of its users. Each
rule is exact and shows nowhere in the prompt. What people say after an answer is understood by the scorer `rules`, so the same
people can teach it without a verifier.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Hindsight, Outcome, TaskItem, question_item
from clawpipe.play.environments.shop_data import OBJECTS
from clawpipe.play.environments.split import heldout, is_heldout_split, stable_hash

_FEW = 16  # words
_LIST = re.compile(r"^\s*(?:[-*\u2022]|\d+[.)])\s", re.MULTILINE)
_METRIC = re.compile(r"\d\s*(?:cm|mm|m|kg|g|(?:centi|milli)?met(?:er|re)s?|(?:kilo)?grams?)\b", re.IGNORECASE)
_IMPERIAL = re.compile(r"\b(?:inch(?:es)?|f(?:oo|ee)t|yards?|pounds?|ounces?|lbs?|oz)\b|\d\s*[\"\u2033]", re.IGNORECASE)


def _is_short(answer: str) -> bool:
    return 0 < len(answer.split()) <= _FEW


def _has_no_list(answer: str) -> bool:
    return bool(answer.strip()) and not _LIST.search(answer)


def _is_metric(answer: str) -> bool:
    return bool(_METRIC.search(answer)) and not _IMPERIAL.search(answer)


Name = Literal["Ada", "Ben", "Cleo", "Dev", "Emil"]


@dataclass(frozen=True)
class Person:
    """A simulated person with one taste.

    Attributes:
        taste: name of the taste; the slice that the gate checks separately.
        likes: the hint that describes the taste.
        fits: whether an answer is to their taste.
        asks: ways to ask, about `{x}`.
        thanks, complains: what they say of an answer.
    """

    name: Name
    taste: str
    likes: str
    fits: Callable[[str], bool]
    asks: tuple[str, ...]
    complains: tuple[str, ...]
    thanks: tuple[str, ...] = ("Thanks, just what I like.", "Perfect, thank you.", "Great, that is it.")


PEOPLE = (
    Person(
        "Ada", "short", f"at most {_FEW} words", _is_short,
        ("What is {x} for?", "Where would I keep {x}?", "Who would need {x}?", "What is {x} made of?"),
        ("No, I asked for something short.", "That is too long for me.", "That is not what I wanted: too long."),
    ),
    Person(
        "Ben", "no lists", "sentences and no list", _has_no_list,
        ("Give me three tips for cleaning {x}.", "Name five uses of {x}.", "List steps to repair {x}.", "Pros and cons of {x}?"),
        ("No, I wanted sentences.", "That is useless to me, I do not read lists.", "I meant in prose, please."),
    ),
    Person(
        "Cleo", "name", "to be called by her name, Cleo", lambda answer: "cleo" in answer.lower(),
        ("Should I buy {x}?", "Can you help me choose {x}?", "I found {x} today, what now?", "Would {x} suit me?"),
        ("No, you did not answer me: I have a name.", "You forgot my name.", "That is not right, call me by name."),
    ),
    Person(
        "Dev", "units", "metric units", _is_metric,
        ("How long is {x}, about?", "How much does {x} weigh?", "How tall is {x} as a rule?", "What size is {x}?"),
        ("I asked for metric units.", "That does not help, I measure in metres and kilograms.", "No, I meant in metric units."),
    ),
    Person(
        "Emil", "tone", "a cheerful tone, with an exclamation mark", lambda answer: "!" in answer,
        ("What do you think of {x}?", "Tell me something about {x}.", "I just got {x}.", "Say something nice about {x}."),
        ("No, I wanted some cheer.", "How disappointing, so dry.", "I meant with more joy."),
    ),
)  # fmt: skip
_BY_TASTE = {person.taste: person for person in PEOPLE}


class TastesEnvironment:
    """Five people, or one of them, each of whom asks two questions per episode.

    Success is a first answer to the taste of whoever asks; the value is the share of such answers. Half of the things that they ask
    about are held out.

    Args:
        person: the only one who asks; None: all five.
        told: whether a system prompt says what this person likes.
    """

    name = "tastes"
    kind = "chat"

    def __init__(self, person: Name | None = None, told: bool = False) -> None:
        self._people = [one for one in PEOPLE if person in (None, one.name)]
        if not self._people or (told and person is None):
            known = ", ".join(one.name for one in PEOPLE)
            raise ConfigError(f"no such person: {person!r}", "environment.options.person", f"the people are {known}")
        self._told = told

    def tools(self) -> list[ToolSpec]:
        """Return no tools."""
        return []

    def preamble(self) -> list[Message]:
        """Return no messages: the policy is not told the tastes, unless it is to be."""
        likes = [f"{one.name} likes {one.likes}." for one in self._people]
        return [Message("system", likes[0])] if self._told else []

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return items that alternate between the people; each asks about all things on one side of the split, in an order that
        `seed` decides.

        Raises:
            ConfigError: no such split.
            DataError: there are fewer items.
        """
        things = _things(is_heldout_split(split), seed)
        if count > (most := len(self._people) * len(things)):
            raise DataError(f"{count} {split} items wanted, {most} to be had", self.name, "ask for fewer items")
        return [
            self._item(split, ordinal, self._people[ordinal % len(self._people)], things[ordinal // len(self._people)])
            for ordinal in range(count)
        ]

    def distinct_items(self, split: str) -> int:
        """Return the number of items on a side: one for each person and thing."""
        return len(self._people) * len(_things(is_heldout_split(split), 0))

    def start(self, item: TaskItem) -> TastesEpisode:
        return TastesEpisode(_person(item), json.loads(item.truth)["next"])

    def verify(self, item: TaskItem, messages: Sequence[Message]) -> Outcome:
        """Return whether the first answer is to the person's taste, before anything was said of it; the value counts all answers.

        Raises:
            ValueError: there is no answer.
        """
        fits = [_person(item).fits(message.content) for message in messages if message.role == "assistant"]
        if not fits:
            raise ValueError("no answer")
        reason = "to their taste" if fits[0] else f"not {_person(item).likes}"
        return Outcome(sum(fits) / len(fits), fits[0], reason, {"fits": fits})

    def hindsight(self, item: TaskItem, messages: Sequence[Message]) -> Hindsight:
        """Return what the person likes, in one sentence."""
        person = _person(item)
        return Hindsight((f"{person.name} likes {person.likes}.",))

    def _item(self, split: str, ordinal: int, person: Person, thing: str) -> TaskItem:
        draw = stable_hash(f"{person.name}/{thing}")
        first, then = (person.asks[(draw + step) % len(person.asks)].format(x=_a(thing)) for step in range(2))
        question, identity = f"{person.name} here. {first}", f"{person.name}/{thing}"
        truth = {"taste": person.taste, "next": f"{person.name} again. {then}"}
        return question_item(self, split, ordinal, identity=identity, part=person.taste, question=question, truth=truth)


class TastesEpisode:
    """The person says what they think of the answer, and asks once more."""

    def __init__(self, person: Person, question: str) -> None:
        self._person, self._question = person, question

    def respond(self, messages: Sequence[Message]) -> list[Message] | None:
        if sum(message.role == "assistant" for message in messages) > 1:
            return None
        answer = messages[-1].content
        words = self._person.thanks if self._person.fits(answer) else self._person.complains
        return [Message("user", f"{words[stable_hash(answer) % len(words)]} {self._question}")]

    def close(self) -> None:
        """Nothing is open."""


def _person(item: TaskItem) -> Person:
    return _BY_TASTE[json.loads(item.truth)["taste"]]


def _things(wanted: bool, seed: int) -> list[str]:
    """Return the things on one side of the split, in the order of `seed`."""
    found = [thing for thing in OBJECTS if heldout(f"tastes/{thing}", 0.5) == wanted]
    return sorted(found, key=lambda thing: stable_hash(f"{seed}/{thing}"))


def _a(thing: str) -> str:
    return f"{'an' if thing[0] in 'aeiou' else 'a'} {thing}"
