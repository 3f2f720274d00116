"""The share of stored data that is held out, so that there is enough for a verdict."""

from __future__ import annotations

from clawpipe.core.config.gate import Gate

LEAST, MOST = 0.1, 0.5
_ENOUGH = 80  # held-out identities, so that there are more of them with something to compare than gate.min_items


def heldout_share(identities: int, least: float = LEAST, most: float = MOST) -> float:
    """Return a share that holds enough of `identities` out for a verdict, between two limits; whole hundredths.

    Args:
        identities: users, or where they are unknown sessions, or prompts: what a verdict counts.
    """
    return round(min(max(_ENOUGH / max(identities, 1), least), most), 2)


def too_few(identities: int, share: float) -> str | None:
    """Return a warning if this share holds out fewer identities than the gate asks for; else None."""
    return None if share * identities >= Gate().min_items else few(identities)


def few(identities: int) -> str:
    """Return the warning that so many identities are too few."""
    what = f"{identities} users, sessions or prompts are too few for a verdict, which asks for {Gate().min_items} held-out ones"
    return f"{what}; the verdict will be HOLD."
