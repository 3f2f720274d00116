"""Where a night writes. Two homes never meet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """The directory that holds everything a night writes; `CLAWPIPE_HOME`, else `~/.clawpipe`."""

    root: Path

    @classmethod
    def from_env(cls) -> Home:
        return cls(Path(os.environ.get("CLAWPIPE_HOME") or Path.home() / ".clawpipe").expanduser().resolve())

    @property
    def store(self) -> Path:
        """Content-addressed artefacts."""
        return self.root / "store"

    @property
    def steps(self) -> Path:
        """Prefect's result records: one JSON file a finished step, named by its key."""
        return self.root / "steps"

    @property
    def runs(self) -> Path:
        """One directory a night: resolved config, journal, lineage, report, logs."""
        return self.root / "runs"

    @property
    def work(self) -> Path:
        """Resumable state of unfinished steps: shards and checkpoints."""
        return self.root / "work"

    @property
    def prefect(self) -> Path:
        return self.root / "prefect"

    @property
    def mlflow(self) -> Path:
        return self.root / "mlflow"

    @property
    def locks(self) -> Path:
        return self.root / "locks"


def model_cache() -> Path:
    """Base weights, shared by all homes; `CLAWPIPE_MODEL_CACHE`, else `~/.cache/clawpipe/models`."""
    return Path(os.environ.get("CLAWPIPE_MODEL_CACHE") or Path.home() / ".cache" / "clawpipe" / "models").expanduser().resolve()
