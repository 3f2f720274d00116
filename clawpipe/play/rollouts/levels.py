"""A curriculum: the level of difficulty that a policy has reached in each part of an environment, by its pass rates.

A slice that ends in /level-2 is the second level of what stands before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clawpipe.core.basics.json_types import Row
from clawpipe.core.config.generation import Difficulty

_LEVEL = re.compile(r"(.*)/level-(\d+)", re.DOTALL)


class Won(NamedTuple):
    """How many rollouts succeeded, of how many with a verdict."""

    won: int
    of: int

    @property
    def rate(self) -> float:
        return self.won / self.of

    def plus(self, won: int, of: int) -> Won:
        return Won(self.won + won, self.of + of)


def part_of(name: str) -> str:
    """Return a slice without its level."""
    found = _LEVEL.fullmatch(name)
    return found[1] if found else name


def level_of(name: str) -> int | None:
    """Return a slice's level; None if it has none."""
    found = _LEVEL.fullmatch(name)
    return int(found[2]) if found else None


def levels_reached(rows: Sequence[Row], rounds: Sequence[Mapping[str, Won]], config: Difficulty) -> dict[str, int]:
    """Return the level of each part whose slices have levels; none if the settings do not ask for them.

    Each part begins at its lowest level. A round that tried the level moves it by one: up where the pass rate there was above
    `high`, down where it was below `low`, never beyond the levels that there are.

    Args:
        rows: tonight's items.
        rounds: what was won of each slice, the newest round first.
    """
    if not config.levels:
        return {}
    known: dict[str, set[int]] = {}
    for row in rows:
        if (level := level_of(row["slice"])) is not None:
            known.setdefault(part_of(row["slice"]), set()).add(level)
    return {part: _reached(part, sorted(levels), rounds, config) for part, levels in sorted(known.items())}


def _reached(part: str, levels: Sequence[int], rounds: Sequence[Mapping[str, Won]], config: Difficulty) -> int:
    place = 0
    for one in reversed(rounds):
        won = one.get(f"{part}/level-{levels[place]}")
        rate = won.rate if won else config.low
        place += (rate > config.high) - (rate < config.low)
        place = min(max(place, 0), len(levels) - 1)
    return levels[place]
