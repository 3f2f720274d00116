"""How soon a model is to one person's taste."""

from __future__ import annotations

from collections.abc import Sequence

IN_A_ROW, MOST = 3, 72


def sessions_until_satisfied(firsts: Sequence[bool], in_a_row: int = IN_A_ROW, most: int = MOST) -> int | None:
    """Return the number of sessions before the first of `in_a_row` whose first reply satisfies; None: not within `most` sessions.

    OpenClaw-RL measures personalisation so.

    Args:
        firsts: whether the first reply satisfies, session by session.
    """
    found = (at for at in range(len(firsts[:most]) - in_a_row + 1) if all(firsts[at : at + in_a_row]))
    return next(found, None)
