"""Whether judges speak against the users' own thumbs, which nights store apart from what judges say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clawpipe.play.judging.gaming.chances import FEWEST, at_most, significant

_TOGETHER = 0.3  # kappa that a judge has with users, at least


def signs_against_users(scores: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each judge that agrees with users less than honest judges do.

    A user's word on a whole conversation is compared with the sum of what the judge says of it.

    Args:
        scores: rows of `scores` with trajectory_id, turn, scorer, origin and value.
    """
    judges: defaultdict[str, defaultdict[tuple[str, int | None], float]] = defaultdict(lambda: defaultdict(float))
    users: defaultdict[tuple[str, int | None], float] = defaultdict(float)
    for row in scores:
        place = row["trajectory_id"], row["turn"]
        if row["origin"] == "user":
            users[place] += row["value"]
        elif row["origin"] == "judge":
            for where in {place, (row["trajectory_id"], None)}:
                judges[row["scorer"]][where] += row["value"]
    compared = {name: list(_pairs(said, users)) for name, said in sorted(judges.items())}
    return [f"{name} speaks against the users: {text}" for name, pairs in compared.items() if (text := against_users(pairs))]


def _pairs(
    said: Mapping[tuple[str, int | None], float], users: Mapping[tuple[str, int | None], float]
) -> Iterator[tuple[bool, bool]]:
    for place, thumb in users.items():
        if thumb and said.get(place):
            yield said[place] > 0, thumb > 0


def against_users(pairs: list[tuple[bool, bool]]) -> str:
    """Return how a judge and users differ, in words; "" where they do not."""
    return against(pairs, _TOGETHER, "was liked")


def against(pairs: list[tuple[bool, bool]], kappa: float, good_is: str) -> str:
    """Return in words how a judge's signs and another's differ, where they agree less than `kappa` explains; "" else."""
    good = [theirs for mine, theirs in pairs if mine]
    bad = [theirs for mine, theirs in pairs if not mine]
    liked = sum(good) + sum(bad)
    if len(pairs) < FEWEST or not good or not bad or liked in (0, len(pairs)):
        return ""
    mine, theirs = len(good) / len(pairs), liked / len(pairs)
    chance = mine * theirs + (1 - mine) * (1 - theirs)
    agreed = sum(one == other for one, other in pairs)
    if not significant(at_most(agreed, len(pairs), chance + kappa * (1 - chance))):
        return ""
    shares = sum(good) / len(good), sum(bad) / len(bad)
    return f"{shares[0]:.2f} of what it praises {good_is}, and {shares[1]:.2f} of what it blames (n={len(pairs)})"
