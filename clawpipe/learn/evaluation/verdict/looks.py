"""Looks: which night of which home has looked at which held-out identities. They are in the ledger, beside the moves of the alias.

Looking uses up evidence: a champion that was lucky on some items stays lucky on them. So a night records its identities
before the first model answers them, and later nights draw the identities with the fewest looks. A night that was killed
before that has not looked. One that was killed after it has looked; when it resumes, it draws the same items, since it
counts only the looks before its first one. If another champion has come meanwhile, it counts those up to then: what others looked
at after it did, they may have chosen that champion on. A line without identities says where a draw counts to.

Nights of one draw (`draw` in their settings, for example the trials of a sweep) answer the same items: each counts the looks
before the first of them, so a sweep uses up one night's evidence.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
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
            draw: count only looks of others before this draw's first one, if it has one, or before it was renewed.

        Raises:
            DataError: the ledger is damaged.
        """
        looks = self._looks(self._ledger)
        return _counted(_before(looks, [look.draw == draw and self._is_mine(look) for look in looks]))

    def begin(self, draw: str) -> None:
        """Fix the result of `seen(draw)` from now on, before any night of the draw has looked."""
        ledger = self._ledger
        with ledger.lock(LOG):
            if not any(look.draw == draw and self._is_mine(look) for look in self._looks(ledger)):
                self._append(ledger, draw, draw, ())

    def renew(self, night: str) -> None:
        """Let a night that has looked count the looks of others up to now: it is to beat a champion that has come since."""
        ledger = self._ledger
        with ledger.lock(LOG):
            if any(look.draw == night and self._is_mine(look) for look in self._looks(ledger)):
                self._append(ledger, night, night, ())

    def record(self, night: str, draw: str, identities: Iterable[str]) -> Freshness:
        """Record that `night` looks at these identities; those recorded before are not added again.

        Returns:
            how often other nights had looked at them before this night's first look, or before it was renewed.

        Raises:
            DataError: the ledger is damaged.
        """
        wanted, ledger = sorted(set(identities)), self._ledger
        with ledger.lock(LOG):
            looks = self._looks(ledger)
            own = [look.night == night and self._is_mine(look) for look in looks]
            recorded = {identity for look in compress(looks, own) for identity in look.identities}
            if new := tuple(identity for identity in wanted if identity not in recorded):
                self._append(ledger, night, draw, new)
            return Freshness.of(wanted, _counted(_before(looks, own)))

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

    def renew(self, night: str) -> None:
        """See `Looks.renew`."""
        for part in self.parts:
            part.renew(night)

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


def _before(looks: Sequence[Look], own: Sequence[bool]) -> list[Look]:
    """Return the looks of others before the last own line without identities, else before the first own look."""
    places = [place for place, mine in enumerate(own) if mine]
    end = max([place for place in places if not looks[place].identities], default=min(places, default=len(looks)))
    return [look for look, mine in zip(looks[:end], own, strict=False) if not mine]


def _counted(looks: Sequence[Look]) -> dict[str, int]:
    homes = {look.home for look in looks if look.home}
    only = homes.pop() if len(homes) == 1 else ""  # lines without a home are of the only one
    pairs = {(look.home or only, look.night, identity) for look in looks for identity in look.identities}
    return dict(sorted(Counter(identity for *_, identity in pairs).items()))


def look(store: Store, ledger: Looks | SeveralLooks, night: str, draw: str, items: DatasetRef) -> StepResult:
    """Record that `night` looks at these task items; `details` is a `Freshness`, in which other nights of its draw do not count."""
    identities = read_dataset(store, items, ["identity"])["identity"].to_pylist()
    found = ledger.record(night, draw, identities)
    if draw != night:
        found = Freshness.of(set(identities), ledger.seen(draw))
    return StepResult(rows_in=items.rows, rows_out=items.rows, details=found.model_dump())
