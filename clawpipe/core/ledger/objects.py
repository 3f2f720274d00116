"""The ledger in a storage that creates an object only if it is absent: S3, or a shared disk.

<log>/<place>        a row, created once; the place's number has eight digits
<log>/<place>.made   the row was pending and is settled
locks/...            see `clawpipe.core.ledger.lease`
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from pydantic import BaseModel, ConfigDict, ValidationError

from clawpipe.core.ledger.lease import lease
from clawpipe.core.ledger.rows import Row, SharedLedger, disk_lock
from clawpipe.core.store.objects import Objects, is_conditional
from clawpipe.errors import ConfigError, DataError

_MADE = ".made"


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    pending: bool
    carried: str
    entry: str


class ObjectLedger(SharedLedger):
    """Objects below a URL.

    Args:
        variable: the environment's variable that says where, for messages.

    Raises:
        ConfigError: nobody knows whether the storage keeps the first of two writers' objects.
    """

    kind = "store"

    def __init__(self, url: str, variable: str) -> None:
        if not is_conditional(url):
            raise ConfigError(
                "a ledger needs a storage with conditional writes", url, "use s3:// or file://, a database, or the home"
            )
        self._objects = Objects(url, variable)

    @property
    def where(self) -> str:
        return self._objects.url

    def lock(self, what: str) -> AbstractContextManager[object]:
        """Hold a lock file on a disk; elsewhere a lease that its holder renews."""
        if path := self._objects.flock(f"locks/{what}.lock"):
            return disk_lock(path, what)
        return lease(self._objects, f"locks/{what}")

    def rows(self, log: str) -> list[Row]:
        found = self._objects.all_in(log)
        return [self._row(log, name, data, f"{name}{_MADE}" in found) for name, data in found.items() if not name.endswith(_MADE)]

    def insert(self, log: str, row: Row) -> bool:
        stored = _Stored(name=row.name, pending=row.pending, carried=row.carried, entry=row.entry)
        return self._objects.create_own(self._path(log, row), stored.model_dump_json().encode())

    def mark_settled(self, log: str, row: Row) -> None:
        self._objects.create(f"{self._path(log, row)}{_MADE}", b"")

    def delete(self, log: str, row: Row) -> None:
        self._objects.drop(self._path(log, row))

    def _path(self, log: str, row: Row) -> str:
        return f"{log}/{row.place:08}"

    def _row(self, log: str, name: str, data: bytes, made: bool) -> Row:
        try:
            stored = _Stored.model_validate_json(data)
            return Row(int(name), stored.name, stored.pending and not made, stored.carried, stored.entry)
        except (ValidationError, ValueError):
            raise DataError(f"entry {name} of {log} is damaged", f"{self.where}/{log}/{name}") from None
