"""How many rows each may have so that none has more than its share."""

from __future__ import annotations

from collections.abc import Sequence


def largest_cap(sizes: Sequence[int], sessions: Sequence[int], free: int, share: float) -> int:
    """The largest number of rows to cut every session to, with which none is more than `share` of the rows that are left.

    With a cap c the rows left are free + sum of min(size, c), so that c <= share * (free + shorter + c * longer): `shorter` are the
    rows of the sessions below c, and `longer` is the number of the others. This holds for every c up to the one that is looked for,
    because the right side grows ever more slowly.

    Args:
        sizes: how many rows a session may have, each number once, in ascending order.
        sessions: how many sessions have each.
        free: rows that are of no session.

    Returns:
        At most the largest size; 0 if no number of rows will do.
    """
    cap, shorter, longer = 0, free, sum(sessions)
    for size, count in zip(sizes, sessions, strict=True):
        room = 1 - share * longer
        best = size if room < 1e-9 else min(size, int(share * shorter / room + 1e-9))
        if best <= cap:
            return cap
        cap, shorter, longer = best, shorter + size * count, longer - count
        if cap < size:
            return cap
    return cap
