"""What a ledger is: logs of entries, moves that have begun but not ended, and locks, for one home or for several."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

Entry = TypeVar("Entry", bound=BaseModel)


@dataclass(frozen=True)
class Logged(Generic[Entry]):
    """A log as it stands."""

    entries: list[Entry]
    pending: list[Entry] = field(default_factory=list)  # begun, neither settled nor cancelled
    end: int = 0  # changes whenever another entry begins


class Ledger(Protocol):
    """Logs by name. Whoever appends, begins, settles or cancels holds a lock; reading needs none.

    Every method raises BusyError where a database or a storage does not answer, and DataError where an entry is damaged.
    """

    shared: bool  # whether other homes write to it

    @property
    def where(self) -> str:
        """The place, for messages; without a password."""
        ...

    def identity(self) -> str:
        """Return a name that no other ledger has; it is drawn on first use."""
        ...

    def lock(self, what: str) -> AbstractContextManager[object]:
        """Hold the lock of this name; wait for it as long as it takes. A killed holder's lock is free again by itself."""
        ...

    def read(self, log: str, kind: type[Entry]) -> Logged[Entry]:
        """Return a log, oldest entry first."""
        ...

    def append(self, log: str, entry: BaseModel) -> None:
        """Add an entry, durably."""
        ...

    def begin(self, log: str, topic: str, name: str, entry: BaseModel, after: int) -> None:
        """Add a pending entry, durably, if the log still ends where it did.

        Args:
            topic: one entry of a topic is pending at a time.
            name: unique among entries.
            after: `end` of the log when the entry was decided on.

        Raises:
            BusyError: another entry has begun since.
        """
        ...

    def settle(self, log: str, topic: str, name: str, entry: BaseModel) -> None:
        """Turn the pending entry into one that counts, exactly once."""
        ...

    def cancel(self, log: str, topic: str, name: str) -> None:
        """Remove the pending entry."""
        ...
