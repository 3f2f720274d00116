"""The location of the registry. Imports no MLflow, so that asking whether a registry exists is cheap."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.config.block import Name
from clawpipe.core.ledger.base import Ledger
from clawpipe.core.ledger.open import open_ledger, registry_uri
from clawpipe.core.store.home import Home

_SQLITE = "sqlite:///"


class Tracking(BaseModel):
    """An MLflow tracking and registry URI, the registered model's name, and paths in the home."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str = Field(repr=False, description="may hold credentials")
    artifacts: str | None = Field(description="artifact root of new experiments; None if an MLflow server decides")
    model_name: Name
    home: Path

    @classmethod
    def of(cls, home: Home, model_name: str) -> Tracking:
        """Return the server or database that MLFLOW_TRACKING_URI names, else an SQLite database in the home."""
        uri = registry_uri(home)
        served = uri.startswith(("http://", "https://"))
        return cls(uri=uri, artifacts=None if served else str(home.mlflow / "artifacts"), model_name=model_name, home=home.root)

    @property
    def database(self) -> Path | None:
        """The SQLite file, or None if something else holds the registry."""
        return Path(self.uri.removeprefix(_SQLITE)) if self.uri.startswith(_SQLITE) else None

    @property
    def exists(self) -> bool:
        """Whether a model may have been registered."""
        return self.database is None or self.database.exists()

    @property
    def link(self) -> str | None:
        """The address of an MLflow server's pages, without credentials, or None."""
        if not self.uri.startswith(("http://", "https://")):
            return None
        address = urlsplit(self.uri)
        return urlunsplit((address.scheme, address.netloc.rpartition("@")[2], address.path, "", ""))

    @property
    def lock(self) -> Path:
        return Home(self.home).locks / "registry.lock"

    @property
    def scratch(self) -> Path:
        """Directory for files of the lock's holder; the next holder clears it."""
        return Home(self.home).mlflow / ".scratch"

    @property
    def packages(self) -> Path:
        """Directory of downloaded model packages, named by content."""
        return Home(self.home).mlflow / "packages"

    @property
    def log(self) -> Path:
        """Path of the append-only log of promotions and rollbacks, where the ledger is this home's own."""
        return self.home / "promotions.jsonl"

    def ledger(self) -> Ledger:
        """Open the ledger of promotions and looks."""
        return open_ledger(Home(self.home), self.uri)
