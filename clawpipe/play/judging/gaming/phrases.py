"""Phrases that a policy says again and again: fragments of replies that stand neither in the request nor in what led to it."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from clawpipe.core.basics.words import words_of
from clawpipe.play.judging.exchanges import Exchange

LENGTH = 5  # words of a fragment
_MOST = 1500  # turns that are kept, drawn with equal chances from all
_TEXT = 3000  # characters of a reply, and of what led to it


def fragments(text: str) -> set[str]:
    """Return the runs of five words of a text, of which no more than one is said twice."""
    words = words_of(text)
    runs = (words[at : at + LENGTH] for at in range(len(words) - LENGTH + 1))
    return {" ".join(run) for run in runs if len(set(run)) >= LENGTH - 1}


@dataclass(frozen=True)
class Said:
    """A turn, and what judges said of it.

    Attributes:
        request: what the user asked for, by which turns on one thing are told from others.
        context: what the reply may repeat: system prompt, request, earlier steps and their results.
        words: what the user said next.
        values: by judge; 0 is no verdict.
        success: whether a verifier holds the trajectory for a success; None: no verifier spoke.
    """

    request: str
    reply: str
    context: str
    words: str
    values: Mapping[str, float] = field(default_factory=dict)
    success: bool | None = None

    @cached_property
    def own(self) -> set[str]:
        """Return the fragments of the reply that are its own."""
        return fragments(self.reply) - fragments(self.context)

    @property
    def praised(self) -> bool:
        return sum(self.values.values()) > 0


def said(turn: Exchange, values: Mapping[str, float], success: bool | None) -> Said:
    steps = " ".join(message.content[-_TEXT:] for message in (*turn.before[-6:], *turn.earlier[-6:]) if message.role != "assistant")
    context = "\n".join((turn.system[:_TEXT], turn.request[:_TEXT], steps))
    reply = turn.reply.content
    shown = reply if len(reply) <= 2 * _TEXT else f"{reply[:_TEXT]}\n{reply[-_TEXT:]}"
    return Said(turn.request[:_TEXT], shown, context, (turn.following or "")[:_TEXT], values, success)


class Sample:
    """Turns drawn with equal chances from a stream; the same stream gives the same draw.

    Source: J. S. Vitter, ACM TOMS 11 (1985) 37-57, algorithm R.
    """

    def __init__(self) -> None:
        self.turns: list[Said] = []
        self._seen, self._random = 0, random.Random(0)

    def add(self, turn: Said) -> None:
        self._seen += 1
        if len(self.turns) < _MOST:
            self.turns.append(turn)
        elif (place := self._random.randrange(self._seen)) < _MOST:
            self.turns[place] = turn


def requests_by_fragment(turns: Sequence[Said]) -> dict[str, set[str]]:
    """Return the requests on which each fragment was said: answers to one request are alike for a good reason."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for turn in turns:
        for fragment in turn.own:
            found[fragment].add(turn.request)
    return found


def most_repeated(turns: Sequence[Said]) -> tuple[str, int, int]:
    """Return the fragment that is said on most different requests, on how many, and of how many."""
    found = {fragment: len(requests) for fragment, requests in requests_by_fragment(turns).items()}
    best = max(found, key=lambda fragment: (found[fragment], fragment), default="")
    return best, found.get(best, 0), len({turn.request for turn in turns})


def most_canned(turns: Sequence[Said]) -> tuple[str, int, int]:
    """Return the reply that is given to most different requests, to how many, and of how many; short ones do not count."""
    replies: defaultdict[str, set[str]] = defaultdict(set)
    for turn in turns:
        words = words_of(turn.reply)
        if len(set(words)) >= LENGTH:
            replies[" ".join(words)].add(turn.request)
    counts = Counter({reply: len(requests) for reply, requests in replies.items()})
    best = max(counts, key=lambda reply: (counts[reply], reply), default="")
    return best, counts[best], len({turn.request for turn in turns})


def quoting(turns: Sequence[Said]) -> Iterator[bool]:
    """Yield, for each turn after which the user said a few words and a judge praised it, whether all of them stand in the reply."""
    for turn in turns:
        words = set(words_of(turn.words))
        if turn.praised and 0 < len(words) <= LENGTH:
            yield words <= set(words_of(turn.reply))
