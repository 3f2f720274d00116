"""Compare two models on the same held-out items, as a whole and slice by slice. Items of one identity are one observation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clawpipe.learn.evaluation.verdict.statistics import Cluster, beyond_margin, sign_flip
from clawpipe.learn.evaluation.verdict.verdict import Comparison, Evidence, ItemOutcome, ModelOutcomes, SliceComparison


class Pair(NamedTuple):
    """The outcome of both models on one item: success, or what else they are compared by."""

    slice: str
    identity: str
    before: float
    after: float


def differing(left: ModelOutcomes, right: ModelOutcomes) -> int:
    """Return the number of items that only one model has, or that have another slice."""
    named = [{(item, outcome.slice) for item, outcome in model.items.items()} for model in (left, right)]
    return len({item for item, _ in named[0] ^ named[1]})


def identities(model: ModelOutcomes) -> Counter[str]:
    """Return the number of items of each identity."""
    return Counter(outcome.identity or item for item, outcome in model.items.items())


def pairs_of(evidence: Evidence) -> list[Pair]:
    """Return one pair per item; none if an item lacks an outcome."""
    incumbent, candidate = evidence.incumbent, evidence.candidate
    if differing(incumbent, candidate) or incumbent.errors or candidate.errors:
        return []
    return [
        Pair(outcome.slice, outcome.identity or item, _compared_by(incumbent.items[item]), _compared_by(outcome))
        for item, outcome in candidate.items.items()
    ]


def _compared_by(outcome: ItemOutcome) -> float:
    return float(bool(outcome.success)) if outcome.value is None else outcome.value


def clusters_of(pairs: Iterable[Pair]) -> list[Cluster]:
    """Return the items, wins and losses of each identity."""
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for pair in pairs:
        count = counts[pair.identity]
        count[0] += 1
        count[1] += pair.after > pair.before
        count[2] += pair.before > pair.after
    return [Cluster(*count) for count in counts.values()]


def compare(clusters: Sequence[Cluster]) -> Comparison:
    """Return the effect, the mean of wins less losses an item, and the exact one-sided p-values of either direction."""
    n, wins, losses = (sum(counts) for counts in zip(*clusters, strict=True))
    return Comparison(
        n=n,
        identities=len(clusters),
        wins=wins,
        losses=losses,
        effect=(wins - losses) / n,
        p_better=sign_flip(cluster.wins - cluster.losses for cluster in clusters),
        p_worse=sign_flip(cluster.losses - cluster.wins for cluster in clusters),
    )


def compare_slices(pairs: Iterable[Pair], margin: float) -> tuple[SliceComparison, ...]:
    """Return the comparison of each slice, by name, with the p-value of a loss beyond `margin`, a success rate."""
    members: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        members[pair.slice].append(pair)
    return tuple(_compare_slice(name, clusters_of(members[name]), margin) for name in sorted(members))


def _compare_slice(name: str, clusters: Sequence[Cluster], margin: float) -> SliceComparison:
    return SliceComparison(slice=name, p_regression=beyond_margin(clusters, margin), **compare(clusters).model_dump())


def gain_of(pair: Pair) -> int:
    """Return 1 for a win, -1 for a loss, 0 for a tie."""
    return (pair.after > pair.before) - (pair.before > pair.after)
