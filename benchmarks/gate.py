"""Is the gate right over many nights? Simulated nights go through the shipped gate; prints how often it promotes.

    python benchmarks/gate.py --json > benchmarks/gate.json

Each item has a success probability from a symmetric Beta distribution; a better model also solves a share of the items that it
would have failed. Answers are drawn once per model and item, as in greedy decoding, so on reused items a champion keeps its
luck. Champion and candidate differ on 30 % of the items.

Claims: any false promotion in 30 nights of candidates as good as the champion at most 0.05; a candidate 5 points worse is promoted
at most 0.005 of the time; items that share an identity keep a night's level at any correlation; a gain of 10 points on 400 fresh
independent items is found within two nights nine times in ten, on night 30 as on night 1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from itertools import cycle

import numpy as np

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.night import Gate
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.statistics import sign_flip, wilson
from clawpipe.learn.evaluation.verdict.verdict import Decision, Evidence, ItemOutcome, ModelOutcomes

GATE, NIGHTS = Gate(), 30
ITEMS, GAINS, CORRELATIONS = (160, 400, 800), (-0.05, 0.0, 0.05, 0.1, 0.2), (0.0, 0.5, 0.8, 1.0)
CLUSTERS = [2] * 77 + [1] * 6  # 160 items of 83 identities
DISCORDANT = 0.3
_SLICES = "abcd"
_OUTCOMES = {(part, right): ItemOutcome(success=right, slice=part) for part in _SLICES for right in (False, True)}

Answers = np.ndarray  # bool, one per item
Row = JsonObject


class History:
    """A simulated history of nights: items, the champion, and the candidates that the gate sees.

    Args:
        n: items per night, each with a separate identity, in four slices.
        fresh: whether every night has new items.
        gain: gain of a candidate that differs from the champion on 30 % of the items; one without a gain differs on a few less.
        seed: seed of all draws.
    """

    def __init__(self, n: int, *, fresh: bool, gain: float, seed: Iterable[int]) -> None:
        self._n, self._fresh = n, fresh
        self._rng = np.random.default_rng(list(seed))
        apart = (DISCORDANT - abs(gain)) / (1 - 2 * abs(gain))  # share on which equal models differ: E[2 p (1 - p)]
        self._shape = apart / (1 - 2 * apart)
        self._better = 0.0  # compared with the first champion
        self._next_items()

    def night(self, gain: float) -> bool:
        """Run a night with a candidate that is better by `gain`. Returns whether it is promoted, and so is the new champion."""
        if self._fresh:
            self._next_items()
        candidate = self._answers(self._better + gain)
        promoted = is_promoted(self._champion, candidate)
        if promoted:
            self._champion, self._better = candidate, self._better + gain
        return promoted

    def _next_items(self) -> None:
        self._odds = self._rng.beta(self._shape, self._shape, self._n)
        self._champion = self._answers(self._better)

    def _answers(self, better: float) -> Answers:
        """Draw answers: half of the items are right without a gain; `better` of all change, out of the other half."""
        right = self._rng.random(self._n) < self._odds
        changed = self._rng.random(self._n) < 2 * abs(better)
        return right ^ (changed & (right if better < 0 else ~right))


def is_promoted(champion: Answers, candidate: Answers) -> bool:
    """Return the gate's decision; the gate is skipped if the candidate does not even seem better (p >= 0.05)."""
    wins, losses = int(np.sum(candidate & ~champion)), int(np.sum(champion & ~candidate))
    at_a_glance = _seems_better(wins, losses) < GATE.alpha
    return at_a_glance and decide(evidence(champion, candidate), GATE).decision == Decision.PROMOTE


@cache
def _seems_better(wins: int, losses: int) -> float:
    return sign_flip([1] * wins + [-1] * losses)


def evidence(champion: Answers, candidate: Answers) -> Evidence:
    """Return a night's evidence; the base answers like the champion, which decides nothing."""
    base, before, after = (
        _outcomes(role, answers) for role, answers in (("base", champion), ("champion", champion), ("candidate", candidate))
    )
    return Evidence(base=base, champion=before, candidate=after, served="candidate")


def _outcomes(role: str, answers: Answers) -> ModelOutcomes:
    items = {str(place): _OUTCOMES[key] for place, key in enumerate(zip(cycle(_SLICES), answers.tolist(), strict=False))}
    return ModelOutcomes.model_construct(policy_version=role, items=items)


def false_promotion(n: int, histories: int, *, fresh: bool) -> Row:
    """Return how many histories of 30 nights without a gain promote anything."""
    simulated = (History(n, fresh=fresh, gain=0.0, seed=(1, n, fresh, number)) for number in range(histories))
    promoted = [any(history.night(0.0) for _ in range(NIGHTS)) for history in simulated]
    return {"evidence": _evidence_name(fresh), "items": n} | rate(promoted)


def power(n: int, gain: float, nights: int) -> Row:
    """Return how many single nights on fresh items promote a candidate that is better by `gain`."""
    simulated = (History(n, fresh=True, gain=gain, seed=(2, n, round(1000 + 1000 * gain), night)) for night in range(nights))
    return {"gain": gain, "items": n} | rate([history.night(gain) for history in simulated])


def two_nights(first: int, histories: int, *, fresh: bool, n: int = 400, gain: float = 0.1) -> Row:
    """Return how many histories promote a gain on night `first` or the next one, after nights without a gain."""
    found = []
    for number in range(histories):
        history = History(n, fresh=fresh, gain=gain, seed=(3, first, fresh, number))
        for _ in range(first - 1):
            history.night(0.0)
        found.append(history.night(gain) or history.night(gain))
    return {"night": first, "evidence": _evidence_name(fresh), "items": n, "gain": gain} | rate(found)


def _evidence_name(fresh: bool) -> str:
    return "fresh" if fresh else "reused"


def clustered(correlation: float, nights: int) -> Row:
    """Return how often a candidate without a gain seems better in one look at level 0.05 at 160 items of 83 identities."""
    rng = np.random.default_rng([4, round(100 * correlation)])
    looks = [list(_gains(correlation, rng)) for _ in range(nights)]
    by_item = rate([sign_flip(gain for identity in gains for gain in identity) < GATE.alpha for gains in looks])
    by_identity = rate([sign_flip(map(sum, gains)) < GATE.alpha for gains in looks])
    return {"correlation": correlation} | by_identity | {"counted_by_item": by_item["rate"]}


def _gains(correlation: float, rng: np.random.Generator) -> Iterator[list[int]]:
    """Yield win (1), loss (-1) or neither of an identity's items: all alike with this correlation, else independent."""
    for size in CLUSTERS:
        luck = [rng.random()] * size if rng.random() < correlation else rng.random(size).tolist()
        yield [1 if draw < DISCORDANT / 2 else -1 if draw < DISCORDANT else 0 for draw in luck]


def rate(found: list[bool]) -> Row:
    """Return the share with its 95 % interval."""
    low, high = wilson(sum(found), len(found), 0.95)
    return {"rate": round(sum(found) / len(found), 4), "low": round(low, 4), "high": round(high, 4)}


def measure(histories: int) -> Row:
    """Return all figures; equal arguments give equal figures."""
    nights = 5 * histories
    return {
        "false_promotion_30_nights": [false_promotion(n, histories, fresh=fresh) for fresh in (True, False) for n in ITEMS],
        "false_promotion_clustered": [clustered(correlation, nights) for correlation in CORRELATIONS],
        "power": [power(n, gain, nights) for gain in GAINS for n in ITEMS],
        "within_two_nights": [two_nights(first, histories, fresh=fresh) for fresh in (True, False) for first in (1, NIGHTS)],
        "conditions": {
            "gate": GATE.model_dump(include=set(GATE.result_fields())) | {"level": round(GATE.level, 6)},
            "histories": histories,
            "single_nights": nights,
            "clusters": f"{sum(CLUSTERS)} items of {len(CLUSTERS)} identities",
            "discordant": DISCORDANT,
            "numpy": version("numpy"),
        },
    }


def table(found: Row) -> str:
    """Return the table of docs/gate.md: how often one night promotes."""
    rates = {(row["gain"], row["items"]): row["rate"] for row in found["power"]}
    lines = ["| true gain | " + " | ".join(f"{n} items" for n in ITEMS) + " |", "|---" * (1 + len(ITEMS)) + "|"]
    lines += [f"| {100 * gain:+.0f} points | " + " | ".join(f"{rates[gain, n]:.3f}" for n in ITEMS) + " |" for gain in GAINS]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=1000, help="of 30 nights each; of single nights five times as many")
    parser.add_argument("--json", action="store_true", help="print every figure, not only the table")
    arguments = parser.parse_args()
    found = measure(arguments.histories)
    print(json.dumps(found, indent=2) if arguments.json else table(found))


if __name__ == "__main__":
    main()
