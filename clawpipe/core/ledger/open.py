"""Choose the ledger by one setting, and bring along what a home has written before."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import urlsplit

from clawpipe.core.ledger.base import Ledger
from clawpipe.core.ledger.carry import carry_over
from clawpipe.core.ledger.database import SCHEMES, DatabaseLedger
from clawpipe.core.ledger.home import HomeLedger
from clawpipe.core.ledger.objects import ObjectLedger
from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import VARIABLE as SHARED
from clawpipe.core.store.machines import store_url
from clawpipe.core.store.objects import is_conditional
from clawpipe.core.store.remote import VARIABLE as STORE
from clawpipe.errors import ConfigError

VARIABLE = "CLAWPIPE_LEDGER"
_HOME = "home:"  # followed by the directory of another home
_FORMS = "write home, database, store, sqlite:///FILE, postgresql://..., s3://bucket/prefix or file:///directory"


def registry_uri(home: Home) -> str:
    """Return the MLflow server or database that MLFLOW_TRACKING_URI names, else the SQLite database of a home."""
    return os.environ.get("MLFLOW_TRACKING_URI") or own_registry(home)


def own_registry(home: Home) -> str:
    """Return the URI of a home's own database."""
    return f"sqlite:///{home.mlflow / 'mlflow.db'}"


def open_ledger(home: Home, uri: str) -> Ledger:
    """Return the ledger that a home uses for the registry at `uri`; what its files hold is in a shared ledger from then on.

    Raises:
        ConfigError: the setting names nothing that can hold a ledger.
    """
    place = ledger_place(home, uri)
    if place == "home":
        return HomeLedger(home)
    if place.startswith(_HOME):
        holder = Home(Path(place.removeprefix(_HOME)))
        return HomeLedger(holder, shared=holder.root != home.root)  # a home that locked its own file twice would wait for ever
    ledger = DatabaseLedger(place, registry=place == uri) if place.startswith(SCHEMES) else ObjectLedger(place, _named_in())
    carry_over(ledger, home, promotions=uri == own_registry(home) or not (home.mlflow / "mlflow.db").exists())
    return ledger


def ledger_place(home: Home, uri: str) -> str:
    """Return where the ledger is, in a form that means the same in other processes: `home`, or a URL."""
    wanted = os.environ.get(VARIABLE, "") or _default(home, uri)
    if wanted == "database":
        if not uri.startswith(SCHEMES):
            raise ConfigError("the registry is not in a database that can hold a ledger", f"{VARIABLE}={wanted}", _FORMS)
        return uri
    if wanted == "store":
        if not (store := store_url()):
            raise ConfigError(f"there is no shared store for the ledger: {STORE} is not set", f"{VARIABLE}={wanted}", _FORMS)
        return f"{store.rstrip('/')}/.ledger/{_key(uri)}"
    is_home = wanted == "home" or (wanted.startswith(_HOME) and Path(wanted.removeprefix(_HOME)).is_absolute())
    if not is_home and "://" not in wanted:
        raise ConfigError(f"{wanted!r} is no ledger", VARIABLE, _FORMS)
    return wanted


def _named_in() -> str:
    """Return the variable that says where a ledger of objects is."""
    own = os.environ.get(VARIABLE, "")
    if own not in ("", "store"):
        return VARIABLE
    return SHARED if os.environ.get(SHARED) and (not own or not os.environ.get(STORE)) else STORE


def place_for_others(home: Home, uri: str) -> str:
    """Return the setting with which another home's process uses this home's ledger."""
    place = ledger_place(home, uri)
    return f"{_HOME}{home.root}" if place == "home" else place


def _default(home: Home, uri: str) -> str:
    """A home's own registry needs no more than its files. Others share a registry: where it is, or where the artifacts are."""
    if uri == own_registry(home):
        return "home"
    if uri.startswith(SCHEMES):
        return "database"
    if shared := os.environ.get(SHARED):
        return f"{shared.rstrip('/')}/ledger/{_key(uri)}"
    return "store" if is_conditional(os.environ.get(STORE, "")) else "home"


def _key(uri: str) -> str:
    """Return a name for a registry: several may share one store. Credentials are no part of it."""
    parts = urlsplit(uri)
    plain = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    return hashlib.sha256(plain.encode()).hexdigest()[:16]
