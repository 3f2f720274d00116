"""Where a night writes. Two homes never meet."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from clawpipe.errors import BusyError, ConfigError
from clawpipe.machine import as_clawpipe_error


@dataclass(frozen=True)
class Home:
    """The directory that holds everything a night writes; `CLAWPIPE_HOME`, else `~/.clawpipe`."""

    root: Path

    @classmethod
    def from_env(cls) -> Home:
        """The home that the environment names; it is not made.

        Raises:
            ConfigError: it is no directory, or nothing can be written where it would be made.
            BusyError: the disk is full.
        """
        named = Path(os.environ.get("CLAWPIPE_HOME") or "~/.clawpipe")
        try:
            root = named.expanduser().resolve()
            _check_place(root)
        except (OSError, RuntimeError, ValueError) as error:
            if isinstance(known := as_clawpipe_error(error), BusyError):
                raise known from error
            # else a loop of links, nobody's home directory, a NUL
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"the home cannot be used: {reason}", str(named), "set CLAWPIPE_HOME to a directory that you may write to"
            ) from error
        return cls(root)

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
    def logs(self) -> Path:
        """Logs of what belongs to no night's directory."""
        return self.root / "logs"

    @property
    def prefect(self) -> Path:
        return self.root / "prefect"

    @property
    def mlflow(self) -> Path:
        return self.root / "mlflow"

    @property
    def locks(self) -> Path:
        return self.root / "locks"


def _check_place(root: Path) -> None:
    """Whether a directory is at `root`, or one could be made there: a file without a name leaves no trace.

    Raises:
        OSError: neither.
    """
    if root.exists():
        os.scandir(root).close()
        return
    existing = next(parent for parent in root.parents if parent.exists())
    with tempfile.TemporaryFile(dir=existing):
        pass


def model_cache() -> Path:
    """Base weights, shared by all homes; `CLAWPIPE_MODEL_CACHE`, else `~/.cache/clawpipe/models`."""
    return Path(os.environ.get("CLAWPIPE_MODEL_CACHE") or Path.home() / ".cache" / "clawpipe" / "models").expanduser().resolve()
