"""The environment `letters`: the policy answers in lowercase letters, twice. The built-in `random` model learns it in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count as count_up
from itertools import islice

from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.errors import DataError
from clawpipe.play.environments.base import Hindsight, Outcome, TaskItem, question_item
from clawpipe.play.environments.split import heldout, is_heldout_split, stable_hash

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_SYLLABLES = {"short": 3, "long": 5}
_MOST_ITEMS = 100_000  # a side: half of them are short, of which a side has 171,500
_LOWERCASE = frozenset("abcdefghijklmnopqrstuvwxyz")
_ONCE_MORE = Message("user", "again")


class LettersEnvironment:
    """Two turns of chat; the value is the share of lowercase letters in the policy's replies.

    Every reply earns something or nothing by chance, so an untrained model of bytes has better and worse rollouts to learn from,
    whatever the item: the built-in one starts near a value of 0.25.

    Args:
        threshold: share from which an episode is a success.
    """

    name = "letters"
    kind = "chat"

    def __init__(self, threshold: float = 0.5) -> None:
        self._threshold = threshold

    def tools(self) -> list[ToolSpec]:
        return []

    def preamble(self) -> list[Message]:
        return [Message("system", "Use lowercase letters.")]

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return items that alternate between short and long words."""
        wanted = is_heldout_split(split)
        if count > _MOST_ITEMS:
            raise DataError(f"{count} items wanted, {_MOST_ITEMS} to be had", self.name, "ask for fewer items")
        words = zip(*(_words(length, wanted, seed) for length in _SYLLABLES), strict=True)
        turns = ((part, word) for pair in words for part, word in zip(_SYLLABLES, pair, strict=True))
        return [
            question_item(self, split, ordinal, identity=f"word/{word}", part=part, question=word, truth={})
            for ordinal, (part, word) in enumerate(islice(turns, count))
        ]

    def distinct_items(self, split: str) -> int:
        """Return the number of different words on each side of the split."""
        return _MOST_ITEMS

    def start(self, item: TaskItem) -> LettersEpisode:
        return LettersEpisode()

    def verify(self, item: TaskItem, messages: Sequence[Message]) -> Outcome:
        """Return the share of lowercase letters over all replies together; 0 for empty replies."""
        replies = "".join(message.content for message in messages if message.role == "assistant")
        letters = sum(character in _LOWERCASE for character in replies)
        value = letters / len(replies) if replies else 0.0
        success = value >= self._threshold
        reason = "enough letters" if success else "too few letters"
        return Outcome(value, success, reason, {"letters": letters, "characters": len(replies)})

    def hindsight(self, item: TaskItem, messages: Sequence[Message]) -> Hindsight:
        """Return the hint to repeat the word, and a demonstration of it."""
        word = Message("assistant", item.messages[-1].content)
        return Hindsight((f"Say {word.content}, in lowercase letters and nothing else.",), (word, _ONCE_MORE, word))


class LettersEpisode:
    """An episode that asks once more, then ends."""

    def respond(self, messages: Sequence[Message]) -> list[Message] | None:
        replies = sum(message.role == "assistant" for message in messages)
        return [_ONCE_MORE] if replies < 2 else None

    def close(self) -> None:
        pass


def _words(length: str, wanted: bool, seed: int) -> Iterator[str]:
    """Yield different words on one side of the split; there are more than anybody asks for."""
    seen: set[str] = set()
    for index in count_up():
        word = "".join(_syllable(f"{seed}/{length}/{index}/{position}") for position in range(_SYLLABLES[length]))
        if word not in seen and heldout(f"word/{word}", 0.5) == wanted:
            seen.add(word)
            yield word


def _syllable(name: str) -> str:
    draw = stable_hash(name)
    return _CONSONANTS[draw % len(_CONSONANTS)] + _VOWELS[draw // len(_CONSONANTS) % len(_VOWELS)]
