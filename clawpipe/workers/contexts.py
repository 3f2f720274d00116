"""Held-out contexts: tokens on which two policies are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Context(BaseModel):
    """A token history and the places in it that count."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ids: tuple[int, ...]
    positions: tuple[int, ...] = Field(description="indices of tokens (at least 1) before which the next one is foretold")


def choose_contexts(rows: Sequence[dict[str, Any]], wanted: int) -> list[Context]:
    """Trajectories spread evenly over `rows`, until their sampled tokens are `wanted`; all of them where there are fewer.

    Args:
        rows: token_ids and loss_mask of trajectories, in the order of the held-out items.
        wanted: sampled tokens.
    """
    sampled = [[place for place, mask in enumerate(row["loss_mask"]) if mask and place] for row in rows]
    average = sum(map(len, sampled)) / max(len(rows), 1)
    count = min(max(round(wanted / average), 1), len(rows)) if average else 0
    chosen = [len(rows) * number // count for number in range(count)]
    return [Context(ids=rows[row]["token_ids"], positions=tuple(sampled[row])) for row in chosen if sampled[row]]
