"""Content-addressed, immutable directories: written aside, synced, renamed. A second identical write is a no-op.

Layout: `store/<name>/<digest>/` holds the files and `manifest.json`; `digest` is the sha256 of that manifest, which
lists each file's sha256 and size. So the name is the content, and damage of any byte shows.

Any number of processes may write at once: each has a staging directory of its own, and the last move of those that make the
same artefact is taken in turn. Both are guarded by kernel locks on directories, which vanish with their holder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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
        with staging(self.root, name) as directory:
            digest = self._seal(directory, fill(directory))
            return digest, self._reveal(directory, name, digest)

    def _seal(self, directory: Path, facts: dict[str, Any]) -> str:
        there = sorted(directory.rglob("*"))
        files = [path for path in there if path.is_file()]
        entries = [
            {"path": file.relative_to(directory).as_posix(), "bytes": file.stat().st_size, "sha256": sha256_file(file)}
            for file in files
        ]
        manifest = canonical_json(facts | {"files": entries})
        (directory / MANIFEST).write_bytes(manifest)
        for path in (*there, directory / MANIFEST, directory):
            fsync(path)
        return sha256_bytes(manifest)

    def _reveal(self, directory: Path, name: str, digest: str) -> Path:
        final = self.root / name / digest
        if not final.parent.exists():
            final.parent.mkdir(parents=True, exist_ok=True)
            fsync(self.root)
        faults.point("store.before_rename", name)
        with _locked(final.parent):
            if final.exists() and not self._intact(final, digest):
                self._discard(final)
            if not final.exists():
                os.replace(directory, final)
                fsync(final.parent)
        return final

    def remove(self, ref: AnyRef) -> bool:
        """Take an artefact away, in one step for whoever looks. False if there is none. Readers that are under way fail."""
        final = self.path(ref)
        if not final.exists():
            return False
        with _locked(final.parent):
            found = final.exists()
            if found:
                self._discard(final)
        return found

    def _discard(self, final: Path) -> None:
        """Call under the lock of its parent."""
        with staging(self.root, "removed") as directory:
            os.replace(final, directory / final.name)
            fsync(final.parent)

    def names(self) -> Iterator[tuple[str, str]]:
        """Name and digest of every artefact, in order."""
        for directory in sorted(self.root.glob("[!.]*/*/")):
            yield directory.parent.name, directory.name

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
        """Remove what killed writers left. Call only under the home's night lock. Returns how many directories went."""
        area = self.root / STAGING
        if not area.exists():
            return 0
        with _locked(area):
            left = [directory for directory in area.iterdir() if not _held(directory)]
            for directory in left:
                shutil.rmtree(directory)
        return len(left)


@contextmanager
def staging(root: Path, name: str) -> Iterator[Path]:
    """A new directory below the store's staging area for the length of the block; nobody sweeps it while this process lives."""
    directory = root / STAGING / f"{name}-{uuid.uuid4().hex}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        with _locked(directory.parent):  # or a sweep might come between
            directory.mkdir()
            held.callback(shutil.rmtree, directory, ignore_errors=True)
            held.enter_context(_locked(directory))
        yield directory


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Wait for a directory's kernel lock and hold it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _held(directory: Path) -> bool:
    """Whether a living process has locked the directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


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
