"""What grows in a home beside its store: reports of nights, which go when that is asked for, and what is never collected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from clawpipe.core.store.files import clear
from clawpipe.core.store.home import Home
from clawpipe.record.nights.files import REPORT, has_verdict, list_nights, run_dir

# What is never collected: name, paths below the home, reason.
_NEVER = (
    ("records of nights", ("runs",), "tracing and forgetting read them; reports and logs among them go by --keep-reports"),
    ("MLflow", ("mlflow",), "metrics, and files of versions and checkpoints, which go by --keep-versions"),
    ("Prefect's database", ("prefect",), "its server removes runs after 90 days and events after 7"),
    ("promotions and looks", ("promotions.jsonl", "looks.jsonl"), "rollbacks and fresh evidence need them"),
    ("captured turns", ("captured",), "they are sources: `clawpipe forget` removes from them"),
    ("ingest logs", ("ingest",), "they say what has been read"),
    ("logs", ("logs",), "each begins anew at 20 MB, and keeps one file of old lines"),
)


class Stays(BaseModel):
    """A part of the home that this command never removes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str
    bytes: int
    why: str


def old_reports(home: Home, keep: int | None) -> list[str]:
    """Return the nights with a verdict whose report or logs go, the oldest first."""
    nights = list_nights(home)
    old = [] if keep is None else nights[: max(len(nights) - keep, 0)]
    return [night for night in old if has_verdict(home, night) and any(one.exists() for one in _readable(home, night))]


def _readable(home: Home, night: str) -> list[Path]:
    """Return what only people read of a night: nothing else needs it."""
    return [*(run_dir(home, night) / name for name in (REPORT, "logs")), *_uploaded(run_dir(home, night) / "wandb")]


def _uploaded(directory: Path) -> list[Path]:
    """Return what nobody needs of W&B's files: all of them, but for offline runs that `wandb sync` has not uploaded."""
    waiting = [run for run in directory.glob("offline-run-*") if not any(run.glob("*.wandb.synced"))]
    return [path for path in directory.iterdir() if not path.is_symlink() and path not in waiting] if waiting else [directory]


def staying(home: Home) -> Iterator[Stays]:
    """Yield the parts of the home that grow and are never collected, the largest first."""
    parts = ((what, sum(size_of(home.root / name) for name in names), why) for what, names, why in _NEVER)
    yield from (Stays(what=what, bytes=size, why=why) for what, size, why in sorted(parts, key=lambda one: -one[1]) if size)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a directory; 0 if there is none."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size if path.exists() else 0
    with os.scandir(path) as entries:
        return sum(size_of(Path(entry.path)) if entry.is_dir() else entry.stat(follow_symlinks=False).st_size for entry in entries)


def remove_report(home: Home, night: str) -> None:
    """Remove a night's report and logs; its directory keeps its time, by which runs without records are dated."""
    times = run_dir(home, night).stat()
    for path in _readable(home, night):
        if path.is_dir():
            clear(path)
        else:
            path.unlink(missing_ok=True)
    os.utime(run_dir(home, night), ns=(times.st_atime_ns, times.st_mtime_ns))
