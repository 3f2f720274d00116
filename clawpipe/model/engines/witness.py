"""What shows that a server holds a policy: the model's own log-probs of the likeliest tokens at a few places.

A server is asked for single tokens there. Whatever it draws, its log-prob is compared with the model's; so no seed has to mean the
same on two machines, and the model need not be in memory when a server comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from clawpipe.errors import DataError
from clawpipe.model.engines.base import Completion, Sampling
from clawpipe.model.policy.agreement import Bound, Place, agreement

_DRAWS = 8  # of each place
_FEW = 2.0  # how much farther so few tokens may be off on average than the hundred of a whole check


class Witness(BaseModel):
    """The model's log-probs at a few places, all at one temperature, and how far a server's may be from them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    places: tuple[Place, ...]
    bound: Bound

    def asked(self) -> list[tuple[Sequence[int], int]]:
        """Return the histories that a server is asked about, each with a seed."""
        return [(place.ids, seed) for place in self.places for seed in range(_DRAWS)]

    def sampling(self) -> Sampling:
        return Sampling(self.places[0].temperature, max_new_tokens=1)

    def require(self, turns: Iterable[Completion], where: str) -> None:
        """Raise if the tokens that a server has drawn are not of the policy.

        Args:
            turns: answers to what `asked` returns, in its order.

        Raises:
            DataError: their log-probs are too far from the model's, or none of them is a likely token.
        """
        pairs = list(self._pairs(turns))
        found = agreement("engine", "apart", *zip(*pairs, strict=True)) if pairs else None
        if found and found.within(Bound(self.bound.largest, self.bound.mean * _FEW)):
            return
        far = f"{found.largest:.3g} nats off, {found.mean:.2g} on average" if found else "of unlikely tokens alone"
        raise DataError(f"it does not hold the policy: its log-probs are {far}", where, "see which base and adapter it serves")

    def _pairs(self, turns: Iterable[Completion]) -> Iterator[tuple[float, float]]:
        places = (place for place in self.places for _ in range(_DRAWS))
        for place, turn in zip(places, turns, strict=True):
            if turn.ids[0] in place.logprobs:
                yield turn.logprobs[0], place.logprobs[turn.ids[0]]
