"""The ledger of looks: which night has looked at which held-out identities. `looks.jsonl` in the home, beside the promotion log.

Looking uses up evidence: a champion that was lucky on some items stays lucky on them. So a night records its identities
before the first model answers them, and later nights draw the identities with the fewest looks. A night that was killed
before that has not looked. One that was killed after it has looked; when it resumes, it draws the same items, since it
counts only the looks before its first one.

Nights of one draw (`draw` in their settings, for example the trials of a sweep) answer the same items: each counts the looks
before the first of them, so a sweep uses up one night's evidence.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.evaluation.verdict import Freshness
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import read_dataset
from clawpipe.store.files import exclusive
from clawpipe.store.home import Home
from clawpipe.store.log import AppendLog
from clawpipe.store.refs import DatasetRef, StepResult

FILE = "looks.jsonl"


class Look(BaseModel):
    """Identities that a night looked at."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    draw: str = Field(description="name shared by the nights that answer the same items; the night's own id if there are no others")
    time: str = Field(description="ISO 8601, UTC")
    model: str = Field(description="name of the registered model")
    environment: str
    identities: tuple[str, ...]


@dataclass(frozen=True)
class Ledger:
    """Looks at one environment's held-out identities for one registered model.

    Args:
        home: root of the home that holds the file. The trials of a sweep, which have separate homes, use the sweep's.
    """

    home: Path
    model: str
    environment: str

    def seen(self, draw: str | None = None) -> dict[str, int]:
        """Return for each identity the number of nights that have looked at it, sorted by identity.

        Args:
            draw: count only looks before this draw's first one, if it has one.

        Raises:
            DataError: the ledger is damaged.
        """
        looks = self._looks()
        first = next((place for place, look in enumerate(looks) if look.draw == draw), len(looks))
        return _counted(looks[:first])

    def begin(self, draw: str) -> None:
        """Fix the result of `seen(draw)` from now on, before any night of the draw has looked."""
        with self._locked():
            if all(look.draw != draw for look in self._looks()):
                self._append(draw, draw, ())

    def record(self, night: str, draw: str, identities: Iterable[str]) -> Freshness:
        """Record that `night` looks at these identities; those recorded before are not added again.

        Returns:
            how often other nights had looked at them before this night's first look.

        Raises:
            DataError: the ledger is damaged.
        """
        wanted = sorted(set(identities))
        with self._locked():
            looks = self._looks()
            recorded = {identity for look in looks if look.night == night for identity in look.identities}
            if new := tuple(identity for identity in wanted if identity not in recorded):
                self._append(night, draw, new)
            first = next((place for place, look in enumerate(looks) if look.night == night), len(looks))
            return freshness(wanted, _counted(looks[:first]))

    def _append(self, night: str, draw: str, identities: tuple[str, ...]) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        place = {"model": self.model, "environment": self.environment}
        self._log().append(Look(night=night, draw=draw, time=now, identities=identities, **place))

    def _looks(self) -> list[Look]:
        return [look for look in self._log().read() if (look.model, look.environment) == (self.model, self.environment)]

    def _log(self) -> AppendLog[Look]:
        return AppendLog(self.home / FILE, Look)

    def _locked(self) -> AbstractContextManager[None]:
        return exclusive(Home(self.home).locks / "looks.lock", "the ledger of looks", wait=True)


def _counted(looks: Sequence[Look]) -> dict[str, int]:
    pairs = {(look.night, identity) for look in looks for identity in look.identities}
    return dict(sorted(Counter(identity for _, identity in pairs).items()))


def freshness(identities: Iterable[str], seen: Mapping[str, int]) -> Freshness:
    """Return how often the identities have been looked at."""
    counts = [seen.get(identity, 0) for identity in sorted(set(identities))]
    reused = [count for count in counts if count]
    mean = sum(reused) / len(reused) if reused else 0.0
    return Freshness(identities=len(counts), fresh=len(counts) - len(reused), looks=round(mean, 3))


def look(store: Store, ledger: Ledger, night: str, draw: str, items: DatasetRef) -> StepResult:
    """Record that `night` looks at these task items; `details` is a `Freshness`."""
    found = ledger.record(night, draw, read_dataset(store, items, ["identity"])["identity"].to_pylist())
    return StepResult(rows_in=items.rows, rows_out=items.rows, details=found.model_dump())
