"""Evidence that adds up over the nights of a model since its last promotion, for users with a few held-out items a night."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property, reduce

from clawpipe.core.config.gate import Gate
from clawpipe.learn.evaluation.verdict.statistics import betting_evidence, nights_needed
from clawpipe.learn.evaluation.verdict.verdict import Comparison, Tally

_TARGET_POWER = 0.9
_GAIN = 0.2  # that a user would notice: nights are counted for it where what was seen is less
_MOST_NIGHTS = 60


def tally_of(gains: Iterable[tuple[str, int]], seen: Collection[str]) -> Tally:
    """Return how the candidate did on the identities that no night had looked at.

    Args:
        gains: identity, and 1, 0 or -1, of each item.
        seen: identities that earlier nights have looked at.
    """
    totals: defaultdict[str, int] = defaultdict(int)
    for identity, gain in gains:
        totals[identity] += gain
    fresh = [total for identity, total in totals.items() if identity not in seen]
    return Tally(wins=sum(total > 0 for total in fresh), losses=sum(total < 0 for total in fresh), identities=len(fresh))


@dataclass(frozen=True)
class AddedUp:
    """The evidence of tonight, and of the nights before it."""

    tonight: Tally
    earlier: tuple[Tally, ...]
    rules: Gate

    @cached_property
    def whole(self) -> Tally:
        return reduce(Tally.__add__, self.earlier, self.tonight)

    @cached_property
    def value(self) -> float:
        return betting_evidence(self.whole.wins, self.whole.losses)

    @property
    def is_enough(self) -> bool:
        return self.value >= 1 / self.rules.alpha

    @property
    def sentence(self) -> str:
        """Say what the nights have shown together."""
        nights = 1 + len(self.earlier)
        return (
            f"in {nights} night{'s' * (nights != 1)} since the last promotion, of {self.whole.identities} fresh held-out items "
            f"{self.whole.wins} were won and {self.whole.losses} lost; the evidence, {self.value:.3g}, is "
            f"{'at least' if self.is_enough else 'below'} {1 / self.rules.alpha:.3g} (1 / alpha)."
        )

    def missing(self, overall: Comparison, role: str) -> list[str]:
        """Return why the candidate is not clearly better; empty if it is.

        Args:
            overall: tonight's candidate against the incumbent, whose role this is.
        """
        if not self.is_enough:
            return [f"The candidates are not clearly better than the {role} yet: {self.sentence}{self._power()}"]
        if overall.wins > overall.losses and overall.effect >= self.rules.min_effect:
            return []
        return [
            f"The candidates are better than the {role}: {self.sentence} But tonight's changed the success by "
            f"{points(overall.effect)}, and a promotion takes at least {points(self.rules.min_effect)}."
        ]

    def _power(self) -> str:
        """Say within how many nights of as few items a gain would show."""
        if not self.tonight.identities:
            return " Tonight had no fresh item, and so no new evidence."
        gain = max((self.whole.wins - self.whole.losses) / self.whole.identities, _GAIN)
        discordant = max((self.whole.wins + self.whole.losses) / self.whole.identities, gain)
        nights = nights_needed(self.tonight.identities, gain, discordant, self.rules.alpha, _TARGET_POWER, _MOST_NIGHTS)
        when = f"within {nights} night{'s' * (nights != 1)}" if nights else f"not within {_MOST_NIGHTS} nights"
        return f" With {self.tonight.identities} fresh items a night, a gain of {points(gain)} shows nine times in ten {when}."


def points(share: float) -> str:
    """Return a share of items as points of success."""
    return f"{100 * share:.1f} points"
