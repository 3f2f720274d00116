"""A curriculum: the level of difficulty that a policy has reached in each part of an environment, by its pass rates.

A slice that ends in /level-2 is the second level of what stands before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from clawpipe.core.basics.json_types import Row
from clawpipe.core.config.generation import Difficulty

_LEVEL = re.compile(r"(.*)/level-(\d+)", re.DOTALL)


def part_of(name: str) -> str:
    """Return a slice without its level."""
    found = _LEVEL.fullmatch(name)
    return found[1] if found else name


def level_of(name: str) -> int | None:
    """Return a slice's level; None if it has none."""
    found = _LEVEL.fullmatch(name)
    return int(found[2]) if found else None


def levels_reached(rows: Sequence[Row], rounds: Sequence[Sequence[tuple[str, bool]]], config: Difficulty) -> dict[str, int]:
    """Return the level of each part whose slices have levels; none if the settings do not ask for them.

    Each part begins at its lowest level. A round that tried the level moves it by one: up where the pass rate there was above
    `high`, down where it was below `low`, never beyond the levels that there are.

    Args:
        rows: tonight's items.
        rounds: slice and success of each rollout, the newest round first.
    """
    if not config.levels:
        return {}
    known: dict[str, set[int]] = {}
    for row in rows:
        if (level := level_of(row["slice"])) is not None:
            known.setdefault(part_of(row["slice"]), set()).add(level)
    return {part: _reached(part, sorted(levels), rounds, config) for part, levels in sorted(known.items())}


def _reached(part: str, levels: Sequence[int], rounds: Sequence[Sequence[tuple[str, bool]]], config: Difficulty) -> int:
    place = 0
    for outcomes in reversed(rounds):
        verdicts = [success for name, success in outcomes if name == f"{part}/level-{levels[place]}"]
        rate = sum(verdicts) / len(verdicts) if verdicts else config.low
        place += (rate > config.high) - (rate < config.low)
        place = min(max(place, 0), len(levels) - 1)
    return levels[place]
