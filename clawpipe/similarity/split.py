"""On which side of the held-out split an imported item is."""

from __future__ import annotations

from clawpipe.environments.split import Split, heldout
from clawpipe.similarity.words import words_of

_SALT = "imported"


def imported_split(prompt: str, fraction: float) -> Split:
    """The side of an item that is known by its prompt alone.

    Decided by the prompt's words, and by nothing else: it is the same on every night, whatever else is imported, and prompts that
    differ in case, spacing or punctuation are on one side. A larger `fraction` only adds to the held-out side.
    """
    return "heldout" if heldout(" ".join(words_of(prompt)), fraction, _SALT) else "train"
