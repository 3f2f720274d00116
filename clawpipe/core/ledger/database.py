"""The ledger in a database, beside MLflow's tables: SQLite or PostgreSQL."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from clawpipe.core.ledger.rows import Row, SharedLedger, disk_lock
from clawpipe.errors import BusyError, ConfigError, DataError, NotFoundError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, TextClause

SCHEMES = ("sqlite:///", "postgresql")  # also postgresql+psycopg2
_SQLITE = "sqlite:///"
_WAIT_SECONDS = 60
_TABLE = """create table if not exists clawpipe_ledger (
    log varchar(64) not null, place integer not null, name varchar(512) not null, pending integer not null,
    carried varchar(64) not null, entry text not null, primary key (log, place), unique (log, name)
)"""


class DatabaseLedger(SharedLedger):
    """Rows of the table `clawpipe_ledger`, which is created at the first write.

    Args:
        url: of the database.
        registry: whether it is MLflow's, too. MLflow creates its own as a whole, so nothing is written before that.
    """

    kind = "database"

    def __init__(self, url: str, registry: bool = True) -> None:
        self._url, self._registry = url, registry

    @property
    def where(self) -> str:
        from sqlalchemy import make_url

        return make_url(self._url).render_as_string(hide_password=True)

    @contextmanager
    def lock(self, what: str) -> Iterator[None]:
        """Hold a lock file beside an SQLite file, or an advisory lock of PostgreSQL's, which ends with its connection."""
        if self._file:
            with disk_lock(self._file.with_name(f"{self._file.name}.{what}.lock"), what):
                yield
            return
        key = int.from_bytes(hashlib.sha256(f"clawpipe {what}".encode()).digest()[:8], "big", signed=True)
        with self._connected() as connection:
            connection.execute(_sql("select pg_advisory_lock(:key)"), {"key": key})
            connection.commit()  # a session's lock outlasts its transaction, and an open one would only be in others' way
            yield

    def rows(self, log: str) -> list[Row]:
        if self._file and not self._file.exists():
            return []
        with self._connected() as connection:
            if not self._has_table(connection):
                return []
            query = "select place, name, pending, carried, entry from clawpipe_ledger where log = :log order by place"
            return [
                Row(place, name, bool(pending), *rest)
                for place, name, pending, *rest in connection.execute(_sql(query), {"log": log})
            ]

    def insert(self, log: str, row: Row) -> bool:
        from sqlalchemy.exc import IntegrityError

        self._require_file()
        values = {"log": log, "place": row.place, "name": row.name, "pending": int(row.pending)}
        texts = {"carried": row.carried, "entry": row.entry}
        query = "insert into clawpipe_ledger values (:log, :place, :name, :pending, :carried, :entry)"
        with self._connected() as connection:
            try:
                self._create_table(connection)
                connection.execute(_sql(query), values | texts)
                connection.commit()
            except IntegrityError:
                return False
        return True

    def mark_settled(self, log: str, row: Row) -> None:
        self._change("update clawpipe_ledger set pending = 0", log, row)

    def delete(self, log: str, row: Row) -> None:
        self._change("delete from clawpipe_ledger", log, row)

    def _change(self, change: str, log: str, row: Row) -> None:
        where = "where log = :log and place = :place and name = :name and pending = 1"
        with self._connected() as connection:
            made = connection.execute(_sql(f"{change} {where}"), {"log": log, "place": row.place, "name": row.name}).rowcount
            connection.commit()
        if made != 1:
            raise BusyError(f"another home has ended this entry of {log}", self.where, "look at what is in service, then try again")

    @property
    def _file(self) -> Path | None:
        return Path(self._url.removeprefix(_SQLITE)) if self._url.startswith(_SQLITE) else None

    def _require_file(self) -> None:
        if self._registry and self._file and not self._file.exists():
            raise NotFoundError("the registry's database does not exist yet", self.where, "run a night first: `clawpipe run`")

    @cached_property
    def _engine(self) -> Engine:
        from sqlalchemy import NullPool, create_engine
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError

        try:
            return create_engine(self._url, poolclass=NullPool, connect_args={"timeout": _WAIT_SECONDS} if self._file else {})
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise ConfigError(
                f"the ledger's database cannot be used: {error}", fix="install the library that the URL names"
            ) from None

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        from sqlalchemy.exc import DatabaseError, OperationalError

        try:
            with self._engine.connect() as connection:
                yield connection
        except OperationalError as error:
            raise BusyError(f"the ledger's database does not answer: {error.orig}", self.where, "try again once it does") from error
        except DatabaseError as error:
            raise DataError(f"the ledger's database is damaged: {error.orig}", self.where, "restore it from a copy") from error

    def _has_table(self, connection: Connection) -> bool:
        from sqlalchemy import inspect

        return inspect(connection).has_table("clawpipe_ledger")

    def _create_table(self, connection: Connection) -> None:
        if not self._has_table(connection):
            connection.execute(_sql(_TABLE))
            connection.commit()


def _sql(text: str) -> TextClause:
    from sqlalchemy import text as clause

    return clause(text)
