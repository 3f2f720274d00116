"""A sweep and where it lies: `sweeps/<name>-<digest>/` below the home.

sweep.json    what is swept: settings, space, seed; the digest in the name is theirs, so the same command finds the same sweep
study.db      Optuna's study: every trial, as far as it got
home-<slot>/  a home of its own for each trial that may run at the same time; later trials of a slot find its cache
best.yaml     the best settings so far, as `clawpipe run` takes them
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from clawpipe.config.load import with_settings
from clawpipe.config.night import NightConfig
from clawpipe.errors import DataError
from clawpipe.store.digests import sha256_json
from clawpipe.store.files import write_atomic
from clawpipe.store.home import Home
from clawpipe.sweeping.space import Space, as_json

_FILE = "sweep.json"


class Sweep(BaseModel):
    """What is swept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    seed: int
    config: NightConfig
    space: Space

    @property
    def id(self) -> str:
        return f"{self.name}-{sha256_json([self.config, as_json(self.space), self.seed])[:10]}"

    def directory(self, home: Home) -> Path:
        return home.root / "sweeps" / self.id

    def save(self, home: Home) -> Path:
        """Write it down. Returns its directory."""
        directory = self.directory(home)
        write_atomic(directory / _FILE, self.model_dump_json(indent=2).encode())
        return directory

    def night(self, number: int, values: dict[str, Any]) -> NightConfig:
        """The settings of a trial. All trials draw the same items and seeds, so that nothing but the values tells them apart.

        Raises:
            ConfigError: the values do not go together.
        """
        config = with_settings(self.config, values)
        return config.model_copy(update={"night": f"{self.name}-{number:03d}", "draw": self.config.draw or self.name})


def read_sweep(directory: Path) -> Sweep:
    """The sweep that lies there.

    Raises:
        DataError: none does, or its file is damaged.
    """
    try:
        return Sweep.model_validate_json((directory / _FILE).read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"no sweep: {error}", str(directory), "start it again with the same command") from None


def slot_home(directory: Path, slot: int) -> Home:
    """Where the trials of a slot run: two trials at the same time never meet."""
    return Home(directory / f"home-{slot}")


def trial_environment(home: Home, directory: Path, slot: int) -> dict[str, str]:
    """What a process must have in its environment, besides Prefect's address, to run trials of a slot.

    The registry is the home's own, for trials are compared with the champion that is in service.
    """
    own = slot_home(directory, slot)
    registry = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home.mlflow / 'mlflow.db'}"
    return {
        "CLAWPIPE_HOME": str(own.root),
        "PREFECT_LOCAL_STORAGE_PATH": str(own.steps),
        "MLFLOW_TRACKING_URI": registry,
    }
