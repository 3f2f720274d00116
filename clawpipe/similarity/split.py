"""Assign imported items to the training or the held-out side."""

from __future__ import annotations

from clawpipe.environments.split import Split, heldout
from clawpipe.similarity.words import words_of

_SALT = "imported"


def imported_split(prompt: str, fraction: float) -> Split:
    """Return the side of an item that is identified by its prompt.

    The words of the prompt alone determine it: it is the same on every night, and prompts that differ only in case, spacing or
    punctuation are on one side. A larger `fraction` only adds to the held-out side.
    """
    return "heldout" if heldout(" ".join(words_of(prompt)), fraction, _SALT) else "train"
