"""Screenshots of episodes on pages: files of the home, named by the sha256 that verdicts of stored trajectories hold."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home

_DIGEST = re.compile(r"[0-9a-f]{64}")


def unused_screenshots(home: Home, store: Store, going: Collection[str] = (), settling: float = 0.0) -> list[Path]:
    """Return the screenshots that no trajectory of the store's directory or of an unfinished step names.

    Args:
        going: digests of artifacts that do not count.
        settling: seconds for which a new one stays: its row is still to be stored.
    """
    if not home.screenshots.is_dir():
        return []
    files = [
        file for name, digest in store.here() if digest not in going for file in (store.root / name / digest).rglob("*.parquet")
    ]
    named = {digest for file in (*files, *(home.work / "shards").rglob("*.parquet")) for digest in _named(file)}
    now = time.time()
    return [
        picture
        for picture in sorted(home.screenshots.glob("*/*.png"))
        if picture.stem not in named and now - picture.stat().st_mtime >= settling
    ]


def _named(file: Path) -> Iterator[str]:
    """Yield the digests in the verdicts of a file; nothing of one that has none, or cannot be read."""
    try:
        if "verdict" in pq.read_schema(file).names:
            for verdict in pq.read_table(file, columns=["verdict"])["verdict"].to_pylist():
                yield from _DIGEST.findall(verdict or "")
    except (OSError, pa.ArrowException):
        return
