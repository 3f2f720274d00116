"""Looks: which night of which home has looked at which held-out identities. They are in the ledger, beside the moves of the alias.

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.config.environment import Environments, Played
from clawpipe.core.ledger.base import Ledger
from clawpipe.core.ledger.open import open_ledger, registry_uri
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.identity import home_id
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.learn.evaluation.verdict.verdict import Freshness
from clawpipe.play.environments.several import named

LOG = "looks"


class Look(BaseModel):
    """Identities that a night looked at."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    home: str = Field(default="", description="id of the night's home; empty in files that older versions wrote")
    draw: str = Field(description="name shared by the nights that answer the same items; the night's own id if there are no others")
    time: str = Field(description="ISO 8601, UTC")
    model: str = Field(description="name of the registered model")
    environment: str
    identities: tuple[str, ...]


@dataclass(frozen=True)
class Looks:
    """Looks at one environment's held-out identities for one registered model.

    Args:
        home: root of the home whose ledger holds them. The trials of a sweep, which have separate homes, use the sweep's.
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
        looks = self._looks(self._ledger)
        first = next((place for place, look in enumerate(looks) if look.draw == draw and self._is_mine(look)), len(looks))
        return _counted(looks[:first])

    def begin(self, draw: str) -> None:
        """Fix the result of `seen(draw)` from now on, before any night of the draw has looked."""
        ledger = self._ledger
        with ledger.lock(LOG):
            if not any(look.draw == draw and self._is_mine(look) for look in self._looks(ledger)):
                self._append(ledger, draw, draw, ())

    def record(self, night: str, draw: str, identities: Iterable[str]) -> Freshness:
        """Record that `night` looks at these identities; those recorded before are not added again.

        Returns:
            how often other nights had looked at them before this night's first look.

        Raises:
            DataError: the ledger is damaged.
        """
        wanted, ledger = sorted(set(identities)), self._ledger
        with ledger.lock(LOG):
            looks = self._looks(ledger)
            own = [place for place, look in enumerate(looks) if look.night == night and self._is_mine(look)]
            recorded = {identity for place in own for identity in looks[place].identities}
            if new := tuple(identity for identity in wanted if identity not in recorded):
                self._append(ledger, night, draw, new)
            return Freshness.of(wanted, _counted(looks[: min(own, default=len(looks))]))

    def _append(self, ledger: Ledger, night: str, draw: str, identities: tuple[str, ...]) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        place = {"home": home_id(Home(self.home)), "model": self.model, "environment": self.environment}
        ledger.append(LOG, Look(night=night, draw=draw, time=now, identities=identities, **place))

    def _looks(self, ledger: Ledger) -> list[Look]:
        looks = ledger.read(LOG, Look).entries
        return [look for look in looks if (look.model, look.environment) == (self.model, self.environment)]

    def _is_mine(self, look: Look) -> bool:
        """Nights of two homes may have one name, and count as two: their models answered the items twice."""
        return look.home in ("", home_id(Home(self.home)))

    @property
    def _ledger(self) -> Ledger:
        home = Home(self.home)
        return open_ledger(home, registry_uri(home))


@dataclass(frozen=True)
class SeveralLooks:
    """Looks at the identities of several environments, which have the name of theirs before them: `shop/stock/iron kettle`.

    Each environment's looks are those of every night that has it, alone or beside others.
    """

    parts: tuple[Looks, ...]

    def seen(self, draw: str | None = None) -> dict[str, int]:
        """See `Looks.seen`."""
        counted = {f"{part.environment}/{identity}": n for part in self.parts for identity, n in part.seen(draw).items()}
        return dict(sorted(counted.items()))

    def seen_of(self, environment: str) -> dict[str, int]:
        """See `Looks.seen`: of one environment, by its name."""
        return next(part for part in self.parts if part.environment == environment).seen()

    def begin(self, draw: str) -> None:
        """See `Looks.begin`."""
        for part in self.parts:
            part.begin(draw)

    def record(self, night: str, draw: str, identities: Iterable[str]) -> Freshness:
        """See `Looks.record`."""
        wanted = sorted(set(identities))
        found = [part.record(night, draw, _own(part, wanted)) for part in self.parts]
        return Freshness.together(found)


def _own(part: Looks, identities: Sequence[str]) -> list[str]:
    """Return the identities of one environment, as it calls them."""
    before = f"{part.environment}/"
    return [identity.removeprefix(before) for identity in identities if identity.startswith(before)]


def looks_at(home: Path, model: str, played: Played) -> Looks | SeveralLooks:
    """Return the ledger of looks at the held-out items of a night's environments, for a registered model.

    Raises:
        NotFoundError, ConfigError: see `named`.
    """
    names = [one.name for one in named(played)]
    if not isinstance(played, Environments):
        return Looks(home, model, names[0])
    return SeveralLooks(tuple(Looks(home, model, name) for name in dict.fromkeys(names)))


def _counted(looks: Sequence[Look]) -> dict[str, int]:
    homes = {look.home for look in looks if look.home}
    only = homes.pop() if len(homes) == 1 else ""  # lines without a home are of the only one
    pairs = {(look.home or only, look.night, identity) for look in looks for identity in look.identities}
    return dict(sorted(Counter(identity for *_, identity in pairs).items()))


def look(store: Store, ledger: Looks | SeveralLooks, night: str, draw: str, items: DatasetRef) -> StepResult:
    """Record that `night` looks at these task items; `details` is a `Freshness`."""
    found = ledger.record(night, draw, read_dataset(store, items, ["identity"])["identity"].to_pylist())
    return StepResult(rows_in=items.rows, rows_out=items.rows, details=found.model_dump())
