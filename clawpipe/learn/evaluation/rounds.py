"""Choose the round whose policy is the night's candidate, by the success of each policy's rollouts of training items.

The rollouts of a round measure the policy that sampled them, slice by slice; those of the first round measure the night's start,
which is what the others are compared with and is no candidate itself. The rule:

1. A round has *lost* a slice if the slice's success fell below the start's by more than a standard error, and is surely below
   that of the start, or of the steadiest round: the one whose worst slice lost least by the plain figures. Surely: the one-sided
   interval of the difference, at level alpha / (slices x rounds), holds no 0.
2. Among the rounds that have lost no slice, the latest one is chosen whose mean success is within a standard error of the best
   one's, and which is surely below that one in no slice. If every round has lost one, it is the steadiest round, and the choice
   says so.

So what rests on few rollouts decides nothing: its interval is wide. Why the latest: training that lost nothing helps more often
than not. If a further round adds 0.05 on average, give or take 0.05, and a difference is measured with that error, the expected
gain is positive until the later round is measured a standard error below.

Rounds draw different items. Standard errors therefore count how much the rollouts of one item agree (the intraclass correlation,
estimated over all policies and slices), and the mean weighs each slice alike in all rounds. Where two policies tried the same
item, what the item itself contributes cancels in their difference.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

START = 0  # the number of the round that stands for the night's start


class Asked(NamedTuple):
    """What counts as one item: what is asked of an identity in one slice."""

    identity: str
    slice: str


class Tried(NamedTuple):
    """An item that a policy tried: how many of the rollouts succeeded."""

    successes: int
    rollouts: int


@dataclass(frozen=True)
class Measured:
    """A policy and what it tried. `round` is the one that trained it, from 1."""

    round: int
    policy_version: str
    items: Mapping[Asked, Tried]


class SliceRate(BaseModel):
    """A policy's success in one slice. Changes are from the start's; None where it has no rollout in the slice."""

    model_config = ConfigDict(frozen=True)

    successes: int
    rollouts: int
    items: int
    success: float
    change: float | None = None
    error: float | None = Field(default=None, description="standard error of the change")
    lost: bool = False


class RoundRates(BaseModel):
    """A policy's success, slice by slice."""

    model_config = ConfigDict(frozen=True)

    round: int = Field(description="the round that trained it; 0: the night's start")
    policy_version: str
    success: float = Field(description="mean over the slices that all policies tried, each weighed alike for all")
    slices: dict[str, SliceRate]

    @property
    def lost(self) -> list[str]:
        return [name for name, rate in self.slices.items() if rate.lost]

    @property
    def worst(self) -> float:
        """The greatest fall of a slice's success from the start's; 0 if none fell."""
        return max([0.0, *(-rate.change for rate in self.slices.values() if rate.change is not None)])


class Choice(BaseModel):
    """The round whose policy is the candidate, and why."""

    model_config = ConfigDict(frozen=True)

    round: int
    of: int = Field(description="number of the last round that trained a policy")
    policy_version: str
    reason: str = Field(description="one sentence")
    all_lost: bool = Field(description="every round lost a slice")
    level: float = Field(description="level of each one-sided interval")
    rounds: tuple[RoundRates, ...] = Field(description="the start first")


def choose_round(start: Measured, trained: Sequence[Measured], alpha: float) -> Choice:
    """Return the choice among the policies of the rounds; the order of items has no influence.

    Args:
        start: the night's start.
        trained: the rounds' policies, in order, at least one. What was not measured is chosen only if nothing was.
        alpha: chance that noise alone makes a round lose a slice against another policy, over all slices and rounds.
    """
    known = [policy for policy in trained if policy.items]
    if not known or not start.items:
        return _unmeasured(start, trained)
    measures = _Measures([start, *known], alpha)
    rates = [measures.rates(policy) for policy in known]
    steadiest = min(rates, key=lambda rate: (rate.worst, -rate.success, -rate.round))
    judged = [measures.judged(rate, steadiest.round) for rate in rates]
    kept = [rate for rate in judged if not rate.lost]
    best = max(kept or [rate for rate in judged if rate.round == steadiest.round], key=lambda rate: (rate.success, rate.round))
    chosen = max([best, *(rate for rate in kept if measures.is_as_good(rate, best))], key=lambda rate: rate.round)
    return Choice(
        round=chosen.round,
        of=trained[-1].round,
        policy_version=chosen.policy_version,
        reason=_reason(chosen, best, judged, trained[-1].round, bool(kept)),
        all_lost=not kept,
        level=measures.level,
        rounds=(measures.rates(start), *judged),
    )


def fallen_slices(before: Measured, after: Measured, alpha: float) -> dict[str, tuple[float, float]]:
    """Return the slices in which a policy is surely below another one, with the success of both; alpha: see `choose_round`."""
    if not before.items or not after.items:
        return {}
    measures = _Measures([before, after], alpha)
    first, second = measures.rates(before).slices, measures.rates(after).slices
    fallen = [name for name in second if measures.surely_below(after.round, before.round, name)]
    return {name: (first[name].success, second[name].success) for name in fallen}


def _unmeasured(start: Measured, trained: Sequence[Measured]) -> Choice:
    last = trained[-1]
    return Choice(
        round=last.round,
        of=last.round,
        policy_version=last.policy_version,
        reason=f"Round {last.round} of {last.round} is the candidate, the last one: no verified rollout tells the rounds apart.",
        all_lost=False,
        level=1.0,
        rounds=(),
    )


class _Measures:
    """The figures that all comparisons share: the slices, the level and the intraclass correlation. The first policy is the one
    from which changes count."""

    def __init__(self, policies: Sequence[Measured], alpha: float) -> None:
        self._first = policies[0].round
        self._items = {policy.round: _by_slice(policy) for policy in policies}
        names = sorted({name for slices in self._items.values() for name in slices})
        self._common = [name for name in names if all(name in slices for slices in self._items.values())]
        self._weights = {name: sum(_total(slices[name])[1] for slices in self._items.values()) for name in self._common}
        self._correlation = intraclass_correlation([tried for slices in self._items.values() for tried in slices.values()])
        self.level = alpha / (len(names) * (len(policies) - 1))
        self._sure = NormalDist().inv_cdf(1 - self.level)

    def rates(self, policy: Measured) -> RoundRates:
        slices = {name: self._rate(policy.round, name) for name in sorted(self._items[policy.round])}
        return RoundRates(
            round=policy.round, policy_version=policy.policy_version, success=self._mean(policy, slices), slices=slices
        )

    def judged(self, rate: RoundRates, steadiest: int) -> RoundRates:
        """Return the rates with the slices marked that the round has lost."""
        marked = {
            name: part.model_copy(update={"lost": self._is_lost(rate.round, name, part, steadiest)})
            for name, part in rate.slices.items()
        }
        return rate.model_copy(update={"slices": marked})

    def _rate(self, number: int, name: str) -> SliceRate:
        tried = self._items[number][name]
        successes, rollouts = _total(tried)
        change, error = self._difference(number, self._first, name) if number != self._first else (None, None)
        return SliceRate(
            successes=successes,
            rollouts=rollouts,
            items=len(tried),
            success=successes / rollouts,
            change=change,
            error=error,
        )

    def _mean(self, policy: Measured, slices: Mapping[str, SliceRate]) -> float:
        """Return the mean success; over all rollouts if no slice was tried by all policies."""
        if not self._common:
            successes, rollouts = _total(policy.items)
            return successes / rollouts
        return sum(self._weights[name] * slices[name].success for name in self._common) / sum(self._weights.values())

    def _is_lost(self, number: int, name: str, rate: SliceRate, steadiest: int) -> bool:
        if rate.change is None or rate.error is None or rate.change + rate.error >= 0:
            return False
        return any(self.surely_below(number, other, name) for other in (self._first, steadiest) if other != number)

    def is_as_good(self, rate: RoundRates, best: RoundRates) -> bool:
        """Whether a round's mean success is within a standard error of another one's, and surely below it in no slice."""
        errors = {name: self._difference(rate.round, best.round, name)[1] for name in self._common}
        if not errors or any(self.surely_below(rate.round, best.round, name) for name in errors):
            return False
        total = sum(self._weights.values())
        error = math.hypot(*(self._weights[name] * (of_slice or 0.0) for name, of_slice in errors.items())) / total
        return rate.success + error >= best.success

    def surely_below(self, number: int, other: int, name: str) -> bool:
        change, error = self._difference(number, other, name)
        return change is not None and error is not None and change + self._sure * error < 0

    def _difference(self, number: int, other: int, name: str) -> tuple[float | None, float | None]:
        """Return the difference of a slice's success between two policies, and its standard error."""
        mine, theirs = self._items[number].get(name), self._items[other].get(name)
        if not mine or not theirs:
            return None, None
        (won, n), (won_other, n_other) = _total(mine), _total(theirs)
        spread, spread_other = _spread(won, n), _spread(won_other, n_other)
        together = sum(mine[item].rollouts * theirs[item].rollouts for item in mine.keys() & theirs.keys()) / (n * n_other)
        variance = (
            spread / n * self._design(mine)
            + spread_other / n_other * self._design(theirs)
            - 2 * self._correlation * together * math.sqrt(spread * spread_other)
        )
        return won / n - won_other / n_other, math.sqrt(max(variance, 0.0))  # rounding may end just below 0

    def _design(self, tried: Mapping[Asked, Tried]) -> float:
        """Return by how much the rollouts of one item inflate a variance (L. Kish, Survey Sampling, 1965)."""
        sizes = [item.rollouts for item in tried.values()]
        return 1 + (sum(size * size for size in sizes) / sum(sizes) - 1) * self._correlation


def intraclass_correlation(strata: Iterable[Mapping[Asked, Tried]]) -> float:
    """Return how much the rollouts of one item agree beyond what their stratum explains, from 0 to 1: the estimator of the analysis
    of variance. It is 1, the most careful value, where the rollouts do not tell.

    Args:
        strata: the items of one policy in one slice, each.

    Source: A. Donner, International Statistical Review 54 (1986) 67-82.
    """
    groups = [list(stratum.values()) for stratum in strata if stratum]
    items, rollouts = sum(map(len, groups)), sum(item.rollouts for group in groups for item in group)
    free_items, free_rollouts = items - len(groups), rollouts - items
    if not free_items or not free_rollouts:
        return 1.0
    between = sum(_between(group) for group in groups) / free_items
    within = sum(item.successes * (1 - item.successes / item.rollouts) for group in groups for item in group) / free_rollouts
    size = (rollouts - sum(sum(item.rollouts**2 for item in group) / _size(group) for group in groups)) / free_items
    total = between + (size - 1) * within
    return min(max((between - within) / total, 0.0), 1.0) if total > 0 else 1.0


def _between(group: Sequence[Tried]) -> float:
    mean = sum(item.successes for item in group) / _size(group)
    return sum(item.rollouts * (item.successes / item.rollouts - mean) ** 2 for item in group)


def _size(group: Sequence[Tried]) -> int:
    return sum(item.rollouts for item in group)


def _by_slice(policy: Measured) -> dict[str, dict[Asked, Tried]]:
    slices: defaultdict[str, dict[Asked, Tried]] = defaultdict(dict)
    for asked in sorted(policy.items):
        slices[asked.slice][asked] = policy.items[asked]
    return dict(slices)


def _total(tried: Mapping[Asked, Tried]) -> tuple[int, int]:
    """Return successes and rollouts."""
    return sum(item.successes for item in tried.values()), sum(item.rollouts for item in tried.values())


def _spread(successes: int, rollouts: int) -> float:
    """Return the variance of one rollout's success. One success and one failure are added, since none in few is no certainty
    (A. Agresti and B. Caffo, The American Statistician 54 (2000) 280-288)."""
    rate = (successes + 1) / (rollouts + 2)
    return rate * (1 - rate)


def _reason(chosen: RoundRates, best: RoundRates, judged: Sequence[RoundRates], of: int, kept: bool) -> str:
    """Return one sentence whose beginning says the most, since narrow places cut it."""
    head, mean = f"Round {chosen.round} of {of} is the candidate", f"mean success on training items ({chosen.success:.3f})"
    what = (
        f"the best {mean}" if chosen is best else f"a {mean} within a standard error of round {best.round}'s ({best.success:.3f})"
    )
    lost = [f"round {rate.round} lost {', '.join(rate.lost)}" for rate in judged if rate.lost]
    if not kept:
        change, name = min((rate.change or 0.0, name) for name, rate in chosen.slices.items())
        return f"{head}, although every round lost a slice: it lost least, {100 * -change:.1f} points of {name}."
    if lost:
        return f"{head}: {'; '.join(lost)}, and of those left it has {what}."
    return f"{head}: it has {what}, and no round lost a slice."
