"""The ledger of looks: which held-out identities which night has looked at. `looks.jsonl` in the home, beside the promotion log.

Evidence is used up by looking: a champion that was lucky on some items stays lucky on them. So a night writes its identities
down before the first model answers them, and later nights draw those that the fewest nights have looked at. A night that was
killed before that has looked at nothing. One that was killed after it has looked; when it goes on, it draws what it drew before,
since it counts only the looks before its own.

All trials of a sweep look together, under the sweep's name: they answer the same items and use up one night's evidence.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.evaluation.verdict import Freshness
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import read_dataset
from clawpipe.store.home import Home
from clawpipe.store.locks import exclusive
from clawpipe.store.log import AppendLog
from clawpipe.store.refs import DatasetRef, StepResult

FILE = "looks.jsonl"


class Look(BaseModel):
    """Identities that one night looked at."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    who: str = Field(description="a night, or a sweep")
    time: str = Field(description="ISO 8601, UTC")
    model: str = Field(description="name of the registered model")
    environment: str
    identities: tuple[str, ...]


class Ledger:
    """The looks at one environment's held-out identities on behalf of one registered model."""

    def __init__(self, home: Home, model: str, environment: str) -> None:
        self._log = AppendLog(home.root / FILE, Look)
        self._lock = home.locks / "looks.lock"
        self._model, self._environment = model, environment

    def seen(self, before: str | None = None) -> dict[str, int]:
        """Identity to the number of nights that have looked at it, by name.

        Args:
            before: a night, itself not counted; of one that has looked already, the looks since then are not counted either.

        Raises:
            DataError: the ledger is damaged.
        """
        looks = self._looks()
        first = next((place for place, look in enumerate(looks) if look.who == before), len(looks))
        pairs = {(look.who, identity) for look in looks[:first] for identity in look.identities}
        return dict(sorted(Counter(identity for _, identity in pairs).items()))

    def record(self, who: str, identities: Iterable[str]) -> Freshness:
        """Write down that `who` looks at these; written down already, nothing is added. Returns how fresh they are to `who`.

        Raises:
            DataError: the ledger is damaged.
        """
        wanted = sorted(set(identities))
        with exclusive(self._lock, str(self._lock), wait=True):
            own = {identity for look in self._looks() if look.who == who for identity in look.identities}
            if new := tuple(identity for identity in wanted if identity not in own):
                self._log.append(Look(who=who, time=_now(), model=self._model, environment=self._environment, identities=new))
            return freshness(wanted, self.seen(before=who))

    def _looks(self) -> list[Look]:
        return [look for look in self._log.read() if (look.model, look.environment) == (self._model, self._environment)]


def freshness(identities: Iterable[str], seen: dict[str, int]) -> Freshness:
    """How often these have been looked at."""
    counts = [seen.get(identity, 0) for identity in sorted(set(identities))]
    reused = [count for count in counts if count]
    mean = sum(reused) / len(reused) if reused else 0.0
    return Freshness(identities=len(counts), fresh=len(counts) - len(reused), looks=round(mean, 3))


def look(store: Store, ledger: Ledger, who: str, items: DatasetRef) -> StepResult:
    """Write down that `who` looks at these task items; `details` is a `Freshness`."""
    found = ledger.record(who, read_dataset(store, items, ["identity"])["identity"].to_pylist())
    return StepResult(rows_in=items.rows, rows_out=items.rows, details=found.model_dump())


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
