"""The words by which people react, a file for each language: what the files may hold, and how phrases are looked up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Literal

from pydantic import Field

from clawpipe.core.config.block import Block
from clawpipe.core.config.load import read_yaml
from clawpipe.play.judging.reactions.clauses import words_of

_HERE = Path(__file__).parent
_SIGNS = "signs"
Kind = Literal["light", "not", "good", "bad", "thanks", "praise", "blame", "neutral"]
_KINDS: tuple[Kind, ...] = ("light", "not", "good", "bad", "thanks", "praise", "blame", "neutral")  # later ones win
Phrase = tuple[str, ...]
_BY_COMMAS = ("within", "asks", "but", "wanted", "troubles", "over", "ahead", "harm", "owns", "meant", "pasted")  # lists of phrases
_BY_SPACES = ("supposes", "now", "denies")  # lists of words


class Words(Block):
    """A language's phrases, between commas; single words where there are none. `a/b c` stands for `a c` and `b c`."""

    script: Literal["latin", "cyrillic", "han", "kana"]
    common: str = Field(description="frequent words, by which the language is known")
    light: str = Field(description="words that may stand beside what is said of an answer: pronouns, adverbs, interjections")
    turns: str = Field(description="words that turn what is said into its opposite")
    denies: str = Field(description="words that blame where they are all that is said")
    wanted: str = Field(description="beginnings that say what was wanted; after a word that blames alone, blame")
    good: str = Field(description="praise where a clause says nothing else")
    bad: str = Field(description="blame where a clause says nothing else")
    thanks: str = Field(description="beginnings of thanks")
    praise: str = Field(description="beginnings of praise")
    blame: str = Field(description="beginnings of blame")
    within: str = Field(description="blame, wherever in a clause it stands")
    neutral: str = Field(description="beginnings that look like a reaction and are none")
    asks: str = Field(description="beginnings of questions and requests")
    supposes: str = Field(description="words of a clause that supposes something")
    but: str = Field(description="words that set what follows against what was said before")
    now: str = Field(default="", description="beginnings of what became of it: after praise they are sarcasm")
    troubles: str = Field(default="", description="names of what may be wrong")
    over: str = Field(default="", description="praise where they are said of troubles")
    ahead: str = Field(default="", description="in a clause of thanks: it thanks for what is still to come")
    harm: str = Field(default="", description="in a clause of thanks or praise: what it names did harm, so it is not meant")
    owns: str = Field(default="", description="words by which users own a mistake: what they meant is then no blame")
    meant: str = Field(default="", description="words that say what was meant, or what was sent by mistake")
    pasted: str = Field(default="", description="names of a text that was given, by which later lines ask about the first one")


class Signs(Block):
    """Pictures that say something by themselves."""

    praise: str
    blame: str


@dataclass(frozen=True)
class Lexicon:
    """The phrases of a language, to be looked up word by word."""

    script: str
    common: frozenset[str]
    kinds: dict[Phrase, Kind]
    within: frozenset[Phrase]
    asks: frozenset[Phrase]
    supposes: frozenset[Phrase]
    but: frozenset[Phrase]
    now: frozenset[Phrase]
    denies: frozenset[Phrase]
    wanted: frozenset[Phrase]
    troubles: frozenset[Phrase]
    over: frozenset[Phrase]
    ahead: frozenset[Phrase]
    harm: frozenset[Phrase]
    owns: frozenset[Phrase]
    meant: frozenset[Phrase]
    pasted: frozenset[Phrase]
    longest: int

    def at(self, words: Sequence[str], place: int) -> tuple[Kind | None, int]:
        """Return the kind of the longest phrase that begins at a place, and where it ends."""
        for end in range(min(place + self.longest, len(words)), place, -1):
            if kind := self.kinds.get(tuple(words[place:end])):
                return kind, end
        return None, place

    def knows(self, words: Sequence[str]) -> tuple[int, int]:
        """Return how many of the words are frequent in the language, and how many are in a list of it."""
        return sum(word in self.common for word in words), sum((word,) in self.kinds for word in words)

    def is_neutral(self, words: Sequence[str]) -> bool:
        return self.at(words, 0)[0] == "neutral"

    def thanks(self, words: Sequence[str]) -> bool:
        """Whether a clause begins with thanks."""
        return self.at(words, 0)[0] == "thanks"

    def praises_somewhere(self, words: Sequence[str]) -> bool:
        """Whether a clause holds thanks or a phrase of praise."""
        return any(self.at(words, place)[0] in ("thanks", "praise") for place in range(len(words)))

    def supposes_something(self, words: Sequence[str]) -> bool:
        return self.place_of(self.supposes, words, range(len(words))) is not None

    def blames_somewhere(self, words: Sequence[str]) -> bool:
        return any(self.at(words, place)[0] in ("bad", "blame") for place in range(len(words)))

    def names_trouble(self, words: Sequence[str]) -> bool:
        return self.place_of(self.troubles, words, range(len(words))) is not None

    def takes_back(self, words: Sequence[str], of_thanks: bool) -> bool:
        """Whether what follows a word of thanks or praise takes it back: a negation, or harm ("nice job ruining it", "thanks for
        the wrong answer"). An error does not: people thank for its end."""
        places = range(len(words))
        if any(self.kinds.get((word,)) == "not" for word in words) or self.place_of(self.harm, words, places) is not None:
            return True
        bad = (place for place in places if self.at(words, place)[0] == "bad")
        return of_thanks and any(not self.end_of(self.troubles, words[place:]) for place in bad)

    def is_ahead(self, words: Sequence[str]) -> bool:
        """Whether a clause thanks for what is still to come."""
        return self.at(words, 0)[0] in ("thanks", "neutral") and self.place_of(self.ahead, words, range(len(words))) is not None

    def owns_a_mistake(self, words: Sequence[str]) -> bool:
        return self.place_of(self.owns, words, range(len(words))) is not None

    def says_what_was_meant(self, words: Sequence[str]) -> bool:
        return self.place_of(self.meant, words, range(len(words))) is not None

    def turns_what_is_bad(self, words: Sequence[str]) -> bool:
        """Whether a negation turns a word of blame, beside words that say nothing: "you are not wrong", "not a bad idea"."""
        place = next((at for at, word in enumerate(words) if self.kinds.get((word,)) == "not"), len(words))
        rest = [word for word in words[place:] if self.kinds.get((word,)) not in ("light", "not")]
        return any(self.kinds.get(tuple(rest[:size])) == "bad" for size in range(1, 3))

    def says_that_trouble_is_over(self, words: Sequence[str]) -> bool:
        """Whether a clause says that an error, say, is gone; not that it is not."""
        trouble = self.place_of(self.troubles, words, range(len(words)))
        over = None if trouble is None else self.place_of(self.over, words, range(trouble + 1, len(words)))
        return over is not None and not any(self.kinds.get((word,)) == "not" for word in words[:over])

    def place_of(self, phrases: frozenset[Phrase], words: Sequence[str], places: Iterable[int]) -> int | None:
        """Return the first of the places at which one of the phrases begins; None if there is none."""
        return next((at for at in places if self.end_of(phrases, words[at : at + self.longest])), None)

    def end_of(self, phrases: frozenset[Phrase], words: Sequence[str]) -> int:
        """Return how many words the longest of the phrases takes that the words begin with; 0 if there is none."""
        sizes = range(min(self.longest, len(words)), 0, -1)
        return next((size for size in sizes if tuple(words[:size]) in phrases), 0)

    def says_what_was_wanted(self, words: Sequence[str]) -> bool:
        """Whether a clause says what was wanted, after words that say nothing; in Japanese at its end, so anywhere in it."""
        for at in range(len(words)):
            rest = words[at:]
            wanted = self.end_of(self.wanted, rest)
            if wanted:
                return wanted > self.end_of(self.asks, rest) and not (self.is_neutral(rest) and self.at(rest, 0)[1] > wanted)
            if self.script != "kana" and self.kinds.get((words[at],)) not in ("light", "not"):
                return False
        return False

    def asks_or_supposes(self, words: Sequence[str]) -> bool:
        """Whether a clause supposes something, or begins as a question or request, and not with a longer phrase ("what a mess")."""
        asks = self.end_of(self.asks, words)
        return 0 < asks >= self.at(words, 0)[1] or self.supposes_something(words)


@cache
def lexicons() -> dict[str, Lexicon]:
    """Return the phrases of each language that there is a file for."""
    files = sorted(file for file in _HERE.glob("*.yaml") if file.stem != _SIGNS)
    return {file.stem: _lexicon(Words.model_validate(read_yaml(file))) for file in files}


@cache
def signs() -> tuple[frozenset[str], frozenset[str]]:
    """Return the pictures of praise, and those of blame."""
    found = Signs.model_validate(read_yaml(_HERE / f"{_SIGNS}.yaml"))
    return frozenset(found.praise.split()), frozenset(found.blame.split())


def _lexicon(words: Words) -> Lexicon:
    phrases: dict[Kind, str] = {kind: getattr(words, kind) for kind in _KINDS if kind not in ("light", "not")}
    listed = {kind: text.split(",") for kind, text in phrases.items()} | {"light": words.light.split(), "not": words.turns.split()}
    kinds: dict[Phrase, Kind] = {phrase: kind for kind in _KINDS for phrase in _phrases(listed[kind])}
    lists = {name: frozenset(_phrases(getattr(words, name).split(","))) for name in _BY_COMMAS}
    lists |= {name: frozenset(_phrases(getattr(words, name).split())) for name in _BY_SPACES}
    longest = max(map(len, [*kinds, *chain.from_iterable(lists.values())]))
    return Lexicon(words.script, frozenset(words.common.split()), kinds, longest=longest, **lists)


def _phrases(texts: Sequence[str]) -> Iterator[Phrase]:
    for text in texts:
        for chosen in product(*(word.split("/") for word in text.split())):
            yield words_of(" ".join(chosen))
