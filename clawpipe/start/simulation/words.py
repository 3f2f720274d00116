"""What simulated users say of an answer: their words come from people and paraphrase, and from nothing that the judge was made of.

A user can tell whether an answer fits the question. Whether they say so is another matter: many say nothing of it, some are wrong,
and a few attack: they praise what is wrong and blame what is right.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Literal

from clawpipe.core.config.load import read_yaml

Mood = Literal["praise", "blame", "none"]
Arm = Literal["as is", "permuted", "no judge", "verifier"]

_SILENT = 0.35  # say nothing of the answer
_MISTAKEN = 0.08  # of those who speak take a wrong answer for right, or a right one for wrong
ATTACKERS = 16  # one user in so many attacks, always
_KEPT = 0.5  # of what is said comes from people; the rest is paraphrase
_PLAIN = {True: "Thank you, that is right.", False: "That is wrong."}  # words that the judge always reads


@cache
def said() -> dict[str, dict[Mood, list[str]]]:
    """Return sentences by source, kept or paraphrase, and by mood."""
    return read_yaml(Path(__file__).with_name("said.yaml"))


def reaction(success: bool, user: int, arm: Arm, draw: random.Random) -> tuple[Mood, str]:
    """Return a user's mood about an answer, and what the user says.

    Args:
        success: whether the answer was right; in the arm with permuted words that of somebody else's answer.
        user: the user's number.
        arm: of an experiment; "verifier" has neither silence nor mistakes, and says it in words that the judge always reads.
        draw: decides mood and words.
    """
    if arm == "verifier":
        return ("praise" if success else "blame"), _PLAIN[success]
    mood = _mood(success, user, draw)
    source = "kept" if draw.random() < _KEPT else "paraphrase"
    return mood, draw.choice(said()[source][mood])


def attacks(user: int) -> bool:
    """Whether a user always says the opposite of what is so."""
    return user % ATTACKERS == ATTACKERS - 1


def _mood(success: bool, user: int, draw: random.Random) -> Mood:
    silent, mistaken = draw.random() < _SILENT, draw.random() < _MISTAKEN
    if attacks(user):
        return "blame" if success else "praise"
    if silent:
        return "none"
    return "praise" if success != mistaken else "blame"
