"""Content-addressed, immutable directories: written aside, synced, renamed. A second identical write is a no-op.

Layout: `store/<name>/<digest>/` holds the files and `manifest.json`; `digest` is the sha256 of that manifest, which
lists each file's sha256 and size. So the name is the content, and damage of any byte shows.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawpipe import faults
from clawpipe.errors import DataError
from clawpipe.store.digests import canonical_json, sha256_bytes, sha256_file
from clawpipe.store.refs import AnyRef

MANIFEST = "manifest.json"
STAGING = ".staging"


class Store:
    """The artefacts below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._verified: dict[tuple[str, int, int], str] = {}

    def path(self, ref: AnyRef) -> Path:
        """The directory of `ref`, which need not exist.

        Raises:
            DataError: the ref's name or digest would leave the store.
        """
        for part in (ref.name, ref.digest):
            if not part.replace("_", "").replace("-", "").isalnum():
                raise DataError(f"{part!r} cannot name an artefact", fix="letters, digits, '-' and '_' only")
        return self.root / ref.name / ref.digest

    def publish(self, name: str, fill: Callable[[Path], dict[str, Any]]) -> tuple[str, Path]:
        """Run `fill(directory)`, then make the directory visible under its content's digest.

        `fill` writes files and returns facts for the manifest (JSON; nothing volatile: equal content must get an equal name).

        Returns:
            digest and final directory.
        """
        staging = self.root / STAGING / f"{name}-{uuid.uuid4().hex}"
        staging.mkdir(parents=True)
        try:
            digest = self._seal(staging, fill(staging))
            return digest, self._reveal(staging, name, digest)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _seal(self, staging: Path, facts: dict[str, Any]) -> str:
        files = [file for file in sorted(staging.rglob("*")) if file.is_file()]
        entries = [
            {"path": file.relative_to(staging).as_posix(), "bytes": file.stat().st_size, "sha256": sha256_file(file)}
            for file in files
        ]
        manifest = canonical_json(facts | {"files": entries})
        (staging / MANIFEST).write_bytes(manifest)
        for file in (*files, staging / MANIFEST):
            fsync(file)
        fsync(staging)
        return sha256_bytes(manifest)

    def _reveal(self, staging: Path, name: str, digest: str) -> Path:
        final = self.root / name / digest
        final.parent.mkdir(parents=True, exist_ok=True)
        faults.point("store.before_rename", name)
        if final.exists() and not self._intact(final, digest):
            damaged = self.root / STAGING / f"damaged-{uuid.uuid4().hex}"
            os.replace(final, damaged)
            shutil.rmtree(damaged)
        if not final.exists():
            os.replace(staging, final)
            fsync(final.parent)
        return final

    def intact(self, ref: AnyRef) -> bool:
        """Whether every byte of the artefact is there as it was published."""
        return self._intact(self.path(ref), ref.digest)

    def _intact(self, directory: Path, digest: str) -> bool:
        try:
            if self._sha256(directory / MANIFEST) != digest:
                return False
            files = read_manifest(directory)["files"]
            return all(self._sha256(directory / entry["path"]) == entry["sha256"] for entry in files)
        except OSError:
            return False

    def _sha256(self, file: Path) -> str:
        """sha256 of a file, remembered for as long as its size and change time stay."""
        stat = file.stat()
        key = (str(file), stat.st_size, stat.st_ctime_ns)
        if key not in self._verified:
            self._verified[key] = sha256_file(file)
        return self._verified[key]

    def require(self, ref: AnyRef) -> Path:
        """The directory of an artefact that must be whole.

        Raises:
            DataError: it is missing or damaged.
        """
        if not self.intact(ref):
            raise DataError(
                f"artefact {ref.name}/{ref.digest[:12]} is missing or damaged",
                where=str(self.path(ref)),
                fix="run the night again: it recomputes what it can, and says what it cannot",
            )
        return self.path(ref)

    def sweep(self) -> int:
        """Remove what a killed writer left. Call only under the home's night lock. Returns how many directories went."""
        left = list((self.root / STAGING).glob("*"))
        for directory in left:
            shutil.rmtree(directory)
        return len(left)


def read_manifest(directory: Path) -> dict[str, Any]:
    return json.loads((directory / MANIFEST).read_bytes())


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
    aside.write_bytes(data)
    fsync(aside)
    faults.point("write_atomic.before_rename", path.name)
    os.replace(aside, path)
    fsync(path.parent)
