"""Checkpoints that survive a kill at any moment: written to a temporary directory, synced, manifest last, renamed.

Layout: `checkpoint-N/` holds safetensors and JSON files, and `MANIFEST.json` with the sha256 of each and the digests of
the run's settings and data. No file is ever unpickled.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from clawpipe.core.store.digests import sha256_file
from clawpipe.core.store.files import fsync
from clawpipe.core.system import faults

_MANIFEST = "MANIFEST.json"
_KEPT = 2  # checkpoints: the one before serves if the newest is damaged


class Manifest(TypedDict):
    """Contents of MANIFEST.json."""

    step: int
    identity: dict[str, str]
    files: dict[str, str]  # sha256 by file name


class Checkpoints:
    """The checkpoints of one run, in a directory.

    Args:
        root: directory that only this run uses.
        identity: digests of everything that decides the result; checkpoints with another identity are unusable.
    """

    def __init__(self, root: Path, identity: dict[str, str]) -> None:
        self.root, self.identity = root, identity
        self.staging = root / "tmp-checkpoint"

    def save(self, step: int, fill: Callable[[Path], None]) -> None:
        """Run `fill(directory)`, write the manifest, rename the directory into place, and remove the oldest checkpoint."""
        staging = self.staging
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        fill(staging)
        self._seal(staging, step)
        faults.kill_point("checkpoint.before_rename")
        final = self.root / f"checkpoint-{step}"
        shutil.rmtree(final, ignore_errors=True)
        os.replace(staging, final)
        fsync(self.root)
        for old in self._newest_first()[_KEPT:]:
            shutil.rmtree(old)

    def latest_valid(self) -> Path | None:
        """Return the newest intact checkpoint. Damaged ones are renamed `.corrupt`, those of another run are removed."""
        for directory in self._newest_first():
            manifest = _read_manifest(directory)
            if manifest is None or not _is_intact(directory, manifest):
                _mark_corrupt(directory)
            elif manifest.get("identity") != self.identity:
                shutil.rmtree(directory)
            else:
                return directory
        return None

    def clear(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def _newest_first(self) -> list[Path]:
        found = [path for path in self.root.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
        return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)

    def _seal(self, directory: Path, step: int) -> None:
        files = sorted(directory.iterdir())
        for file in files:
            fsync(file)
        entries = {file.name: sha256_file(file) for file in files}
        manifest: Manifest = {"step": step, "identity": self.identity, "files": entries}
        (directory / _MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True))
        fsync(directory / _MANIFEST)
        fsync(directory)


def _read_manifest(directory: Path) -> Manifest | None:
    try:
        return json.loads((directory / _MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None


def _is_intact(directory: Path, manifest: Manifest) -> bool:
    try:
        return all(sha256_file(directory / Path(name).name) == digest for name, digest in manifest["files"].items())
    except (OSError, KeyError, TypeError, AttributeError):
        return False


def _mark_corrupt(directory: Path) -> None:
    target = directory.with_name(f"{directory.name}.corrupt")
    shutil.rmtree(target, ignore_errors=True)
    os.replace(directory, target)
