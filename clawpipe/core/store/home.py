"""The home: the directory of all files of nights."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from clawpipe.core.system.machine import as_clawpipe_error
from clawpipe.errors import BusyError, ConfigError

_MISREAD = re.compile(r"""\?|%[0-9A-Fa-f]{2}|'.*"|".*'""")  # in a path, which MLflow would read as a part of a URL or of SQL


@dataclass(frozen=True)
class Home:
    """The directory that holds everything a night writes; `CLAWPIPE_HOME`, else `~/.clawpipe`."""

    root: Path

    @classmethod
    def from_env(cls) -> Home:
        """Return the home that the environment names, without creating it.

        Raises:
            ConfigError: it is no directory, nothing can be written where it would be made, or MLflow would misread its path.
            BusyError: the disk is full.
        """
        named = Path(os.environ.get("CLAWPIPE_HOME") or "~/.clawpipe")
        try:
            root = named.expanduser().resolve()
            _check_place(root)
        except (OSError, RuntimeError, ValueError) as error:
            if isinstance(known := as_clawpipe_error(error), BusyError):
                raise known from error
            # a loop of links, an unknown home directory, a NUL
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"the home cannot be used: {reason}", str(named), "set CLAWPIPE_HOME to a directory that you may write to"
            ) from error
        if misread := _MISREAD.search(str(root)):
            what, fix = (
                f"MLflow would misread {misread[0]!r} in the home's path",
                "move or rename it, or set CLAWPIPE_HOME to another",
            )
            raise ConfigError(what, str(named), fix)
        return cls(root)

    @property
    def is_of_a_sweep(self) -> bool:
        """Whether it is the home of a sweep's trials, which lies in another home and is of one machine."""
        return self.root.parent.parent.name == "sweeps"

    @property
    def store(self) -> Path:
        """The directory of content-addressed artifacts."""
        return self.root / "store"

    @property
    def steps(self) -> Path:
        """The directory of Prefect's result records: one JSON file for each finished step, named by its key."""
        return self.root / "steps"

    @property
    def runs(self) -> Path:
        """The directory with one folder for each night: resolved config, journal, lineage, report, logs."""
        return self.root / "runs"

    @property
    def work(self) -> Path:
        """The directory of resumable state of unfinished steps: shards and checkpoints."""
        return self.root / "work"

    @property
    def screenshots(self) -> Path:
        """The directory of pictures of pages that policies have worked on, named by their sha256."""
        return self.root / "screenshots"

    @property
    def logs(self) -> Path:
        """The directory of logs outside of nights."""
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
    """Whether `root` is a writable directory, or could be created; tested by an unnamed file.

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
    """Return the directory of base weights, shared by all homes; `CLAWPIPE_MODEL_CACHE`, else `~/.cache/clawpipe/models`."""
    return Path(os.environ.get("CLAWPIPE_MODEL_CACHE") or Path.home() / ".cache" / "clawpipe" / "models").expanduser().resolve()
