"""A sweep and its directory: `sweeps/<name>-<digest>/` below the home.

sweep.json    settings, space and seed; their digest is in the name, so the same command finds the same sweep
study.db      Optuna's study with every trial
home-<slot>/  a separate home for each trial that may run at the same time; later trials of a slot use its cache
best.yaml     the best settings so far, as a config for `clawpipe run`
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.load import with_settings
from clawpipe.core.config.night import NightConfig
from clawpipe.core.ledger.open import VARIABLE, place_for_others, registry_uri
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.errors import DataError
from clawpipe.start.sweeping.space import Space, as_json

_FILE = "sweep.json"


class Sweep(BaseModel):
    """The settings, the space and the seed of a sweep."""

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
        """Write the sweep's file. Returns its directory."""
        directory = self.directory(home)
        write_atomic(directory / _FILE, self.model_dump_json(indent=2).encode())
        return directory

    def night(self, number: int, values: Options) -> NightConfig:
        """Return the settings of a trial. All trials draw the same items and seeds, so that they differ only in the values.

        Raises:
            ConfigError: the values contradict each other.
        """
        config = with_settings(self.config, values)
        return config.model_copy(update={"night": f"{self.name}-{number:03d}", "draw": self.config.draw or self.name})


def read_sweep(directory: Path) -> Sweep:
    """Read the sweep in a directory.

    Raises:
        DataError: there is none, or its file is damaged.
    """
    try:
        return Sweep.model_validate_json((directory / _FILE).read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"no sweep: {error}", str(directory), "start it again with the same command") from None


def slot_home(directory: Path, slot: int) -> Home:
    """Return the home in which a slot's trials run, so that two trials never share a home at the same time."""
    return Home(directory / f"home-{slot}")


def trial_environment(home: Home, directory: Path, slot: int) -> dict[str, str]:
    """Return the variables that a process needs, besides Prefect's address, to run trials of a slot.

    Registry and ledger are the main home's, because trials are compared with the champion in service.
    """
    home_of_slot = slot_home(directory, slot)
    registry = registry_uri(home)
    return {
        "CLAWPIPE_HOME": str(home_of_slot.root),
        "PREFECT_LOCAL_STORAGE_PATH": str(home_of_slot.steps),
        "MLFLOW_TRACKING_URI": registry,
        VARIABLE: place_for_others(home, registry),
    }
