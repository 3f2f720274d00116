"""Access to MLflow: a client, a lock around changes, and a database that is complete before others see it."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from clawpipe.core.ledger.base import Ledger
from clawpipe.core.ledger.carry import carry_over
from clawpipe.core.ledger.home import HomeLedger
from clawpipe.core.ledger.open import VARIABLE
from clawpipe.core.ledger.rows import SharedLedger
from clawpipe.core.store.files import exclusive
from clawpipe.core.store.home import Home
from clawpipe.core.store.sqlite import damage
from clawpipe.core.system import faults
from clawpipe.errors import BusyError, ConfigError, DataError, NotFoundError
from clawpipe.record.registry.tracking import Tracking

LEDGER_TAG = "clawpipe.ledger"  # of a registered model: the ledger that keeps its moves
_BELOW = "/mlflow/artifacts"  # path below a home; see clawpipe.record.registry.tracking
_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # MLflow answers the latter for an unknown alias
_HEALTH_SECONDS = 5.0
T = TypeVar("T")


def relocate(database: Path, home: Path) -> None:
    """Change the paths in a home's database to `home`, in one transaction; nothing is written if they are right already.

    A database that cannot be written, or is locked for long, stays unchanged: reading needs no more.
    """
    try:
        with closing(sqlite3.connect(database, timeout=10.0)) as connection, connection:
            for old in _other_homes(connection, home):
                _move(connection, old, str(home))
    except sqlite3.OperationalError:
        return


def _other_homes(connection: sqlite3.Connection, home: Path) -> list[str]:
    """Return the other homes that the database's experiments have their artifacts in."""
    locations = connection.execute("select distinct artifact_location from experiments").fetchall()
    roots = {location.removeprefix("file://").rpartition(_BELOW)[0] for (location,) in locations if location and _BELOW in location}
    return sorted(root for root in roots if root != str(home))


def _move(connection: sqlite3.Connection, old: str, new: str) -> None:
    for table, column in _COLUMNS:
        for scheme in ("", "file://"):
            before, after = f"{scheme}{old}{_BELOW}", f"{scheme}{new}{_BELOW}"
            connection.execute(
                f"update {table} set {column} = ? || substr({column}, ?) where substr({column}, 1, ?) = ?",
                [after, len(before) + 1, len(before), before],
            )


@contextmanager
def changes(tracking: Tracking) -> Iterator[MlflowClient]:
    """Yield a client while holding the registry's lock: MLflow has neither compare-and-swap nor unique tags, so looking up and
    creating must not interleave, not even with other homes that share the registry. Not reentrant.

    Raises:
        BusyError: the MLflow server does not answer.
        ConfigError: the registered model's moves are kept in another ledger.
    """
    with changes_here(tracking) as client:
        ledger = tracking.ledger()
        _bring_along(client, tracking, ledger)
        with ledger.lock("registry") if ledger.shared else nullcontext():
            require_ledger(client, tracking, ledger)
            yield client


@contextmanager
def changes_here(tracking: Tracking) -> Iterator[MlflowClient]:
    """Yield a client while holding this home's own lock, which guards the scratch directory and the downloaded packages."""
    with exclusive(tracking.lock, "the model registry", wait=True):
        shutil.rmtree(tracking.scratch, ignore_errors=True)  # files of a killed holder
        tracking.scratch.mkdir(parents=True)
        try:
            _create_database(tracking)
            with answered(tracking):
                yield connect(tracking)
        finally:
            shutil.rmtree(tracking.scratch, ignore_errors=True)


def require_ledger(client: MlflowClient, tracking: Tracking, ledger: Ledger) -> None:
    """Raise ConfigError if the model's moves are kept in another ledger than the one that this home uses."""
    kept = _kept_in(client, tracking)
    if not kept or kept in (ledger.identity(), HomeLedger(Home(tracking.home)).identity()):
        return
    kind, _, name = kept.partition(":")
    where = f"another home ({name})" if kind == "home" else f"another ledger ({kept})"
    raise ConfigError(
        f"the promotions of {tracking.model_name} are kept in {where}, not in {ledger.where}",
        VARIABLE,
        f"set {VARIABLE} to one place in every home that uses this registry: a database, or a shared store (docs/storage.md)",
    )


def claim(client: MlflowClient, tracking: Tracking, ledger: Ledger) -> None:
    """Note at the registered model, once, which ledger keeps its moves. The caller holds the registry's lock."""
    if _kept_in(client, tracking) not in (None, ledger.identity()):
        client.set_registered_model_tag(tracking.model_name, LEDGER_TAG, ledger.identity())
        require_ledger(client, tracking, ledger)  # another home may have been faster, where no lock is common


def _kept_in(client: MlflowClient, tracking: Tracking) -> str | None:
    """Return the identity of the ledger that keeps the model's moves; empty if none is noted; None without the model."""
    model = unless_absent(lambda: client.get_registered_model(tracking.model_name))
    return (model.tags or {}).get(LEDGER_TAG, "") if model else None


def _bring_along(client: MlflowClient, tracking: Tracking, ledger: Ledger) -> None:
    """Add the moves of this home's own file to the ledger that it shares from now on."""
    home = Home(tracking.home)
    if isinstance(ledger, SharedLedger) and _kept_in(client, tracking) == HomeLedger(home).identity():
        carry_over(ledger, home, promotions=True)


def connect(tracking: Tracking) -> MlflowClient:
    """Return a client for reading.

    Raises:
        NotFoundError: nothing has been registered yet.
        DataError: the database is damaged.
        BusyError: the MLflow server does not answer.
    """
    if not tracking.exists:
        raise NotFoundError("no model has been registered yet", str(tracking.home), "run a night first: `clawpipe run`")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    if tracking.database is None:
        _await_server(tracking.uri)
    else:
        _require_intact(tracking.database)
        if tracking.database == Home(tracking.home).mlflow / "mlflow.db":
            relocate(tracking.database, tracking.home)
    return MlflowClient(tracking_uri=tracking.uri, registry_uri=tracking.uri)


@contextmanager
def answered(tracking: Tracking) -> Iterator[None]:
    """Turn an error of MLflow's client into `BusyError` if the reason is a server that does not answer (any more)."""
    try:
        yield
    except (MlflowException, OSError):
        _await_server(tracking.uri)
        raise


def unless_absent(look_up: Callable[[], T]) -> T | None:
    """Return what `look_up` finds, or None if MLflow says that it does not exist."""
    try:
        return look_up()
    except MlflowException as error:
        if error.error_code in _ABSENT:
            return None
        raise


def _create_database(tracking: Tracking) -> None:
    """Create the SQLite database elsewhere and rename it: a database whose MLflow migrations were killed never opens again."""
    if tracking.database is None or tracking.database.exists():
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    staging = tracking.scratch / "mlflow.db"
    SqlAlchemyStore(f"sqlite:///{staging}", str(tracking.artifacts)).engine.dispose()
    tracking.database.parent.mkdir(parents=True, exist_ok=True)
    faults.kill_point("registry.before_database")
    os.replace(staging, tracking.database)


def _require_intact(database: Path) -> None:
    """Raise if the database is damaged, since MLflow would fail with an unclear error."""
    if found := damage(database):
        raise DataError(
            f"the database of runs and models is damaged: {found}",
            str(database),
            "restore it from a copy, or remove it: a night that runs again registers its model again",
        )


def _await_server(uri: str) -> None:
    """Fail at once if the server does not answer, since MLflow's client would retry for minutes."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    try:
        urllib.request.urlopen(f"{shown}/health", timeout=_HEALTH_SECONDS).close()
    except urllib.error.HTTPError:
        pass  # it answers
    except OSError as error:
        raise BusyError(f"the MLflow server does not answer: {error}", shown, "start it, or unset MLFLOW_TRACKING_URI") from None
