"""Settings of what is nearly the same: as each other, or as what evaluation asks."""

from __future__ import annotations

from pydantic import Field

from clawpipe.config.block import Block


class Near(Block):
    """Everything is off by default: items that an environment makes resemble each other, and rollouts of an item all the more."""

    duplicates: bool = Field(default=False, description="set aside what says nearly the same as an earlier trajectory")
    heldout: bool = Field(default=False, description="set aside what is near to a held-out question, or quotes one")
    history: tuple[str, ...] = Field(
        default=(), description="digests of stored trajectory datasets of earlier nights: compared with, not trained on"
    )
    threshold: float = Field(
        default=0.8, ge=0.8, le=1, description="least Jaccard similarity of word 5-grams; below 0.8 the search would miss too many"
    )
    heldout_words: int = Field(default=13, ge=5, description="words in a row of a held-out question that may not be repeated")
