"""Put rankings on one scale: those of the parts of a group, which share some members, and those of several judges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

Ranks = Mapping[int, int]  # the place of each member, the best is 0; equal places are ties


def parts_of(sizes: Sequence[int], most: int, at_once: int, shared: int) -> list[list[int]]:
    """Return the members of each part of a group; the first `shared` members are in every part, for the parts to be compared by.

    Args:
        sizes: of each member; those of `shared` members and of one more fit into `most`.
        at_once: most members of a part.
    """
    anchors, parts = list(range(min(shared, len(sizes)))), list[list[int]]()
    if len(sizes) <= at_once and sum(sizes) <= most:
        return [list(range(len(sizes)))]
    used = 0
    for member in range(len(anchors), len(sizes)):
        if not parts or used + sizes[member] > most or len(parts[-1]) == at_once:
            parts.append([*anchors])
            used = sum(sizes[anchor] for anchor in anchors)
        parts[-1].append(member)
        used += sizes[member]
    return parts


def merged(parts: Sequence[Ranks], shared: int) -> dict[int, Fraction]:
    """Return a height of each member, the best is the highest, from the rankings of the parts.

    The shared members divide each part into storeys. A member's height is its storey, and its place among those of its part in that
    storey as a share of it: so members of different parts that some shared member separates are in the right order, and others are
    compared by their places.
    """
    found: defaultdict[int, list[Fraction]] = defaultdict(list)
    for ranks in parts:
        for member, height in _heights(ranks, shared):
            found[member].append(height)
    return {member: sum(heights, Fraction()) / len(heights) for member, heights in found.items()}


def _heights(ranks: Ranks, shared: int) -> Iterator[tuple[int, Fraction]]:
    marks = sorted((place for member, place in ranks.items() if member < shared), reverse=True)  # the worst first
    storeys: defaultdict[int, set[int]] = defaultdict(set)
    for member, place in ranks.items():
        if member >= shared and place not in marks:
            storeys[sum(place < mark for mark in marks)].add(place)
    for member, place in ranks.items():
        if place in marks:  # at the top of what it beats: of equal marks in the middle
            beaten, equal = sum(place < mark for mark in marks), marks.count(place)
            yield member, Fraction(2 * beaten + equal + 1, 2)
        else:
            storey = sum(place < mark for mark in marks)
            below = sum(other > place for other in storeys[storey])
            yield member, storey + Fraction(below + 1, len(storeys[storey]) + 1)


def standings(heights: Mapping[int, Fraction], counts: Sequence[int]) -> list[Fraction]:
    """Return for each member the share of the others that it is above; of those at its height half.

    Args:
        counts: how many equal ones each member stands for.
    """
    total = sum(counts)
    found = []
    for member in range(len(counts)):
        below = sum(count for other, count in enumerate(counts) if heights[other] < heights[member])
        equal = sum(count for other, count in enumerate(counts) if heights[other] == heights[member]) - 1
        found.append((below + Fraction(equal, 2)) / (total - 1))
    return found
