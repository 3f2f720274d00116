"""Files that a kill or a power cut leaves whole, and the names and manifests of artifacts: what every kind of store needs."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from clawpipe import faults

MANIFEST = "manifest.json"


def is_name(part: str) -> bool:
    """Whether it can name an artefact: it stays below the store."""
    return part.replace("_", "").replace("-", "").isalnum()


def read_manifest(directory: Path) -> dict[str, Any]:
    """What an artifact says of itself: kind, name, files."""
    return json.loads((directory / MANIFEST).read_bytes())


def fsync_tree(directory: Path) -> None:
    """Force a directory and all below it to disk."""
    for path in (*directory.rglob("*"), directory):
        fsync(path)


def fsync(path: Path) -> None:
    """Force a file or a directory's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step that survives a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        aside.write_bytes(data)
        fsync(aside)
        faults.point("write_atomic.before_rename", path.name)
        os.replace(aside, path)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise
    fsync(path.parent)
