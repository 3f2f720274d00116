"""Whether judges speak against the users' own thumbs, which nights store apart from what judges say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from clawpipe.play.judging.gaming.chances import FEWEST, at_most, significant

Signs = Counter[tuple[bool, bool]]  # how often a judge's sign and another's were (good, good) and so on
_TOGETHER = 0.3  # kappa that a judge has with users, at least


def signs_against_users(scored: Iterable[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return a sentence for each judge that agrees with users less than honest judges do.

    A user's word on a whole conversation is compared with the sum of what the judge says of it.

    Args:
        scored: the scores of each trajectory: rows of `scores` with turn, scorer, origin and value.
    """
    compared: defaultdict[str, Signs] = defaultdict(Counter)
    for rows in scored:
        users, judges = _sums(rows)
        for name, said in judges.items():
            compared[name].update(_pairs(said, users))
    found = ((name, against_users(pairs)) for name, pairs in sorted(compared.items()))
    return [f"{name} speaks against the users: {text}" for name, text in found if text]


def _sums(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[int | None, float], dict[str, dict[int | None, float]]]:
    """Return what users, and each judge, say of the turns of a trajectory and of the whole."""
    users: defaultdict[int | None, float] = defaultdict(float)
    judges: defaultdict[str, defaultdict[int | None, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        if row["origin"] == "user":
            users[row["turn"]] += row["value"]
        elif row["origin"] == "judge":
            for where in {row["turn"], None}:
                judges[row["scorer"]][where] += row["value"]
    return dict(users), {name: dict(said) for name, said in judges.items()}


def _pairs(said: Mapping[int | None, float], users: Mapping[int | None, float]) -> Iterator[tuple[bool, bool]]:
    for turn, thumb in users.items():
        if thumb and said.get(turn):
            yield said[turn] > 0, thumb > 0


def against_users(pairs: Signs) -> str:
    """Return how a judge and users differ, in words; "" where they do not."""
    return against(pairs, _TOGETHER, "was liked")


def against(pairs: Signs, kappa: float, good_is: str) -> str:
    """Return in words how a judge's signs and another's differ, where they agree less than `kappa` explains; "" else."""
    n, good, bad = pairs.total(), pairs[True, True] + pairs[True, False], pairs[False, True] + pairs[False, False]
    liked = pairs[True, True] + pairs[False, True]
    if n < FEWEST or not good or not bad or liked in (0, n):
        return ""
    chance = good / n * (liked / n) + (1 - good / n) * (1 - liked / n)
    agreed = pairs[True, True] + pairs[False, False]
    if not significant(at_most(agreed, n, chance + kappa * (1 - chance))):
        return ""
    shares = pairs[True, True] / good, pairs[False, True] / bad
    return f"{shares[0]:.2f} of what it praises {good_is}, and {shares[1]:.2f} of what it blames (n={n})"
