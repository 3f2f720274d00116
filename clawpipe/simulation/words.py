"""Draw the reactions of simulated users to an answer. They know the right answer; the wording is random."""

from __future__ import annotations

import json
import random
from typing import Literal

from clawpipe.environments.base import Outcome, TaskItem

Mood = Literal["thanks", "correction", "repetition", "complaint", "silence"]

_MISTAKEN = 0.04  # of users thank for a wrong answer, or complain of a right one
_SILENT = 0.12  # say nothing of the answer
_WANTED = {"stock": "the stock", "price": "the price", "weather": "the weather", "calc": "the result"}

THANKS = (
    "Thanks!", "Thank you, that helps.", "Great, thanks.", "Perfect.", "Thank you very much.", "That is right, thank you.",
    "Cheers!", "Exactly what I needed.", "Wonderful, thanks a lot.", "Thx", "Excellent, that was quick.", "Lovely, thank you.",
    "I appreciate it.", "Nice one, thanks.", "Brilliant.", "Well done.", "Good to know, thanks.", "Super, that was it.",
)  # fmt: skip
CORRECTIONS = (
    "No, I meant {wanted} of {subject}.", "I asked for {wanted} of {subject}.", "I wanted {wanted} of {subject}, nothing else.",
    "That should be about {subject}: {wanted}, please.", "Use the tool for {wanted} instead, with {subject}.",
    "Not what I asked, I wanted {wanted} of {subject}.", "Actually I was asking about {wanted} of {subject}.",
    "Thanks, but I said {subject}, and I need {wanted}.", "You looked at something else, I asked about {subject}.",
)  # fmt: skip
REPETITIONS = ("{question}", "Again: {question}", "Once more, please: {question}", "I repeat: {question}", "Hello? {question}")
COMPLAINTS = (
    "That is wrong.", "This is not right.", "That's not an answer.", "You got it wrong.", "Wrong answer.", "No.",
    "That does not help.", "This is useless.", "That can't be right, check it again.", "Nope, try again.", "Thanks for nothing.",
    "You did not answer my question.", "That doesn't make sense.", "Incorrect.", "How disappointing.", "I doubt that very much.",
)  # fmt: skip
SILENCES = ("Bye.", "I have to go now.", "Okay.", "Hm.", "Let us talk later.", "I will be back.")
SENTENCES: dict[Mood, tuple[str, ...]] = {
    "thanks": THANKS,
    "correction": CORRECTIONS,
    "repetition": REPETITIONS,
    "complaint": COMPLAINTS,
    "silence": SILENCES,
}


def reaction(goal: TaskItem, outcome: Outcome, draw: random.Random) -> tuple[Mood, str]:
    """Return a user's mood about an answer, and the words of the reaction.

    Args:
        goal: what the user wanted to know.
        outcome: whether it was answered; the user sees the calls as well as the answer.
        draw: decides mood and words.
    """
    mood = _mood(outcome, draw)
    truth = json.loads(goal.truth)
    question = goal.messages[-1].content
    sentence = draw.choice(SENTENCES[mood])
    return mood, sentence.format(wanted=_WANTED[truth["tool"]], subject=_article(truth), question=question)


def _mood(outcome: Outcome, draw: random.Random) -> Mood:
    lot = draw.random()
    if lot < _SILENT:
        return "silence"
    content = outcome.success != (lot < _SILENT + _MISTAKEN)
    if content:
        return "thanks"
    understood = outcome.reason in ("wrong tool", "wrong arguments")
    return draw.choice(("correction", "correction", "complaint") if understood else ("repetition", "complaint"))


def _article(truth: dict[str, str]) -> str:
    return f"the {truth['subject']}" if truth["tool"] in ("stock", "price") else truth["subject"]
