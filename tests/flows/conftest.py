"""Whole nights as a person starts them: `clawpipe` in a process of its own, on the one Prefect server that all tests share."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.home import Home
from tests.waiting import wait_until

TINY = project_directory() / "configs" / "tiny.yaml"
# Four chunks a round, two of which share a shard; a checkpoint after every update.
MECHANICS = ("rollouts.chunks=4", "rollouts.shard_rollouts=64", "train.checkpoint_seconds=0.001")
# Whoever is ahead is promoted, by however little: how well a night learns is for benchmarks/tiny.py and its test to say.
WHOEVER_IS_AHEAD = ("gate.alpha=0.5", "gate.nights=1", "gate.min_effect=0", "gate.min_items=1", "gate.slice_margin=1")
SETTINGS = MECHANICS + WHOEVER_IS_AHEAD
_RUN_SECONDS = 300.0
_LAST_SECONDS = 60.0  # for children whose parent was killed to end


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """Stdout, which must hold one JSON value and nothing else."""
        return json.loads(self.stdout)


@dataclass(frozen=True)
class Clawpipe:
    """The command line on one home."""

    root: Path
    api: str
    guard: Path | None  # runs commands in forks; None: in processes that import everything for themselves
    settings: tuple[str, ...] = SETTINGS
    home: Home = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "home", Home(self.root / "home"))
        self.elsewhere.mkdir(parents=True, exist_ok=True)

    @property
    def cold(self) -> Clawpipe:
        """The command line on the same home, in processes that import everything for themselves, as a person's do."""
        return replace(self, guard=None)

    @property
    def elsewhere(self) -> Path:
        """The working directory; nothing is to be written there."""
        return self.root / "elsewhere"

    def __call__(self, *words: str, kill_at: str = "") -> Done:
        """Run a command to its end."""
        with self.started(*words, kill_at=kill_at) as process:
            stdout, stderr = process.communicate(timeout=_RUN_SECONDS)
        return Done(process.returncode, stdout, stderr)

    @contextmanager
    def started(self, *words: str, kill_at: str = "") -> Iterator[subprocess.Popen[str]]:
        """A command under way; it is killed where the block leaves it running."""
        command = [sys.executable, "-m", "clawpipe.cli.main", *words]
        if self.guard is not None:
            command = [sys.executable, "-S", str(self.guard), "-1", *command]
        env = os.environ | {"CLAWPIPE_HOME": str(self.home.root), "PREFECT_API_URL": self.api, "CLAWPIPE_KILL_AT": kill_at}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=self.elsewhere, env=env, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)

    def run(self, *overrides: str, kill_at: str = "") -> Done:
        """`clawpipe run --json` of the tiny night."""
        return self("run", *self.options(*overrides), kill_at=kill_at)

    def night(self, *overrides: str) -> dict[str, Any]:
        """The status of a tiny night that comes to its verdict."""
        done = self.run(*overrides)
        assert done.code == 0, done.stdout + done.stderr
        return done.json

    def options(self, *overrides: str) -> list[str]:
        """Config and overrides, as `run` and `plan` take them."""
        return ["-c", str(TINY), "--json", *(word for override in (*self.settings, *overrides) for word in ("-o", override))]

    def processes(self) -> list[int]:
        """Processes that work on this home, whoever started them."""
        mark = f"CLAWPIPE_HOME={self.home.root}\0".encode()
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if mark in _read(path)]

    def await_quiet(self) -> None:
        """Wait for the children of a killed run to end; fail if they do not."""
        wait_until(lambda: not self.processes(), _LAST_SECONDS)

    def registered(self, model: str = "clawpipe-tiny") -> dict[str, Path]:
        """Versions of a model, and where their files lie. MLflow itself would go on reading a database that was deleted."""
        with closing(sqlite3.connect(self.home.mlflow / "mlflow.db")) as database:
            rows = database.execute("select version, source from model_versions where name = ?", [model]).fetchall()
        return {str(version): Path(source) for version, source in rows}

    def curves(self) -> dict[str, list[tuple[int, float]]]:
        """Metrics of the updates of all runs in MLflow, by name, but for what depends on the clock."""
        clock = "('seconds', 'tokens_per_second')"
        query = f"select key, step, value from metrics where key not in {clock} order by key, step, timestamp"
        curves: dict[str, list[tuple[int, float]]] = {}
        with closing(sqlite3.connect(self.home.mlflow / "mlflow.db")) as database:
            for name, step, value in database.execute(query):
                curves.setdefault(name, []).append((step, value))
        return curves

    def moves(self) -> list[dict[str, Any]]:
        """The log of promotions."""
        return [json.loads(line) for line in (self.home.root / "promotions.jsonl").read_text().splitlines()]

    def artifacts(self) -> set[str]:
        """Name and digest of everything in the store."""
        return {path.relative_to(self.home.store).as_posix() for path in self.home.store.glob("[!.]*/*")}

    def leftovers(self) -> list[Path]:
        """Whatever is there that a finished night has no use for."""
        scratch = [self.home.work, self.home.store / ".staging", self.home.mlflow / ".scratch"]
        unfinished = [path for place in scratch if place.exists() for path in place.iterdir()]
        return [*unfinished, *self.home.runs.rglob(".*"), *self.home.root.glob("*.pending.json"), *self.elsewhere.iterdir()]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended, or is somebody else's
        return b""


@pytest.fixture(scope="session")
def new_clawpipe(prefect_server: str, preloaded_guard: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Clawpipe]:
    """The command line on a home that does not exist yet."""
    return lambda name: Clawpipe(tmp_path_factory.mktemp(name), prefect_server, preloaded_guard)


@dataclass(frozen=True)
class Finished:
    """A night that nobody disturbed."""

    clawpipe: Clawpipe
    done: Done
    artifacts: set[str]  # of this night alone
    curves: dict[str, list[tuple[int, float]]]  # of this night alone

    @property
    def status(self) -> dict[str, Any]:
        return self.done.json


@pytest.fixture(scope="session")
def finished(new_clawpipe: Callable[[str], Clawpipe]) -> Finished:
    """One undisturbed night for all tests, which leave its home as they found it, or with more nights in it."""
    clawpipe = new_clawpipe("undisturbed")
    done = clawpipe.run()
    assert done.code == 0, done.stdout + done.stderr
    return Finished(clawpipe, done, clawpipe.artifacts(), clawpipe.curves())
