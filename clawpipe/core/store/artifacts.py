"""A store of content-addressed, immutable directories: written to a staging directory, synced, renamed; equal writes are no-ops.

Layout: `store/<name>/<digest>/` holds the files and `manifest.json`; `digest` is the sha256 of that manifest, which
lists each file's sha256 and size. So the name depends on the content alone, and any damaged byte is found.

Any number of processes may write at once: each has its own staging directory, and processes that write the same artifact take turns
in the final rename. Both use kernel locks on directories, which end with their process.

With a shared store (`clawpipe.core.store.remote`) the directory is a cache: artifacts are also written to the shared store, and
missing or damaged ones are fetched from it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.digests import canonical_json, sha256_bytes, sha256_file, sha256_once
from clawpipe.core.store.files import MANIFEST, fsync, fsync_tree, is_held, is_lost, is_name, read_manifest
from clawpipe.core.store.refs import AnyRef
from clawpipe.core.store.remote import Remote
from clawpipe.core.system import faults
from clawpipe.errors import DataError

STAGING = ".staging"


class Store:
    """The artifacts below one directory, and those of the shared store that it caches, if there is one."""

    def __init__(self, root: Path, remote: Remote | None = None) -> None:
        self.root, self.remote = root, remote

    def path(self, ref: AnyRef) -> Path:
        """Return the directory of `ref`, which need not exist.

        Raises:
            DataError: the ref's name or digest would leave the store.
        """
        for part in (ref.name, ref.digest):
            if not is_name(part):
                raise DataError(f"{part!r} cannot name an artifact", fix="letters, digits, '-' and '_' only")
        return self.root / ref.name / ref.digest

    def publish(self, name: str, fill: Callable[[Path], JsonObject]) -> tuple[str, Path]:
        """Run `fill(directory)`, then publish the directory under the digest of its content.

        `fill` writes files and returns fields of the manifest (JSON; nothing volatile: equal content must get an equal name).

        Returns:
            digest and final directory.

        Raises:
            BusyError, ConfigError: the shared store cannot be reached. The directory is there all the same, and the next try
                has nothing to write but what is missing there.
        """
        with staging(self.root, name) as directory:
            digest = self._seal(directory, fill(directory))
            final = self._commit(directory, name, digest)
        if self.remote is not None:
            self.remote.upload(final, name, digest)
        return digest, final

    def share(self, name: str, digest: str) -> None:
        """Upload an artifact of the directory to the shared store, if there is one and it lacks the artifact."""
        here = self.root / name / digest
        if self.remote is not None and here.exists() and not self.remote.has(name, digest):
            self.remote.upload(here, name, digest)

    def _seal(self, directory: Path, fields: JsonObject) -> str:
        files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
        with ThreadPoolExecutor() as threads:
            digests = threads.map(sha256_file, files)
        entries = [
            {"path": file.relative_to(directory).as_posix(), "bytes": file.stat().st_size, "sha256": digest}
            for file, digest in zip(files, digests, strict=True)
        ]
        manifest = canonical_json(fields | {"files": entries})
        (directory / MANIFEST).write_bytes(manifest)
        fsync_tree(directory)
        return sha256_bytes(manifest)

    def _commit(self, directory: Path, name: str, digest: str) -> Path:
        final = self.root / name / digest
        if not final.parent.exists():
            final.parent.mkdir(parents=True, exist_ok=True)
            fsync(self.root)
        faults.kill_point("store.before_rename", name)
        with _locked(final.parent):
            if final.exists() and not self._intact(final, digest):
                self._discard(final)
            if not final.exists():
                os.replace(directory, final)
                fsync(final.parent)
        return final

    def remove(self, ref: AnyRef) -> bool:
        """Remove an artifact in one atomic step. False if there is none. Running readers fail.

        The shared store comes first: after a kill, the local directory still names what to remove there.
        """
        path = self.path(ref)
        shared = self.remote is not None and self.remote.remove(ref.name, ref.digest)
        return self._evict(path) or shared

    def evict(self, ref: AnyRef) -> bool:
        """Remove an artifact from the directory only. False if there is none."""
        return self._evict(self.path(ref))

    def _evict(self, final: Path) -> bool:
        if not final.exists():
            return False
        with _locked(final.parent):
            found = final.exists()
            if found:
                self._discard(final)
        return found

    def _discard(self, final: Path) -> None:
        """Move the artifact away and delete it; call under the lock of its parent."""
        with staging(self.root, "removed") as directory:
            os.replace(final, directory / final.name)
            fsync(final.parent)

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield name and digest of every artifact, in order."""
        shared = self.remote.artifact_sizes() if self.remote is not None else {}
        yield from sorted({*self.here(), *shared})

    def here(self) -> Iterator[tuple[str, str]]:
        """Yield name and digest of the artifacts in the directory."""
        for name in _directories(self.root):
            if not name.startswith("."):
                yield from ((name, digest) for digest in _directories(self.root / name))

    def has(self, ref: AnyRef) -> bool:
        """Whether the artifact exists; its bytes are not checked."""
        return self.path(ref).is_dir() or (self.remote is not None and self.remote.has(ref.name, ref.digest))

    def manifest(self, name: str, digest: str) -> JsonObject:
        """Read the manifest of an artifact; other files are not fetched.

        Raises:
            OSError, ValueError: there is none, or none that can be read.
        """
        directory = self.root / name / digest
        if self.remote is not None and not self._is(directory / MANIFEST, digest):
            shared = self.remote.manifest(name, digest)
            if shared is not None:
                return json.loads(shared)
        return read_manifest(directory)

    def intact(self, ref: AnyRef) -> bool:
        """Whether every byte of the artifact is as published; fetches it into the directory if needed."""
        directory = self.path(ref)
        try:
            return self._intact(directory, ref.digest) or self._fetch(ref)
        except DataError:
            return False

    def _fetch(self, ref: AnyRef) -> bool:
        """Fetch an artifact from the shared store. False if it is not there."""
        if self.remote is None:
            return False
        with staging(self.root, ref.name) as directory:
            found = self.remote.download(ref.name, ref.digest, directory)
            if found:
                fsync_tree(directory)
                self._commit(directory, ref.name, ref.digest)
        return found

    def _intact(self, directory: Path, digest: str) -> bool:
        if not self._is(directory / MANIFEST, digest):
            return False
        files = read_manifest(directory)["files"]
        paths, digests = [directory / file["path"] for file in files], [file["sha256"] for file in files]
        if len(files) < 2:  # a thread costs more than a small file
            return all(map(self._is, paths, digests))
        with ThreadPoolExecutor() as threads:
            return all(threads.map(self._is, paths, digests))

    def _is(self, file: Path, sha256: str) -> bool:
        try:
            return sha256_once(file) == sha256
        except OSError as error:
            if is_lost(error):
                return False
            raise

    def require(self, ref: AnyRef) -> Path:
        """Return the directory of an artifact that must be intact.

        Raises:
            DataError: it is missing or damaged, and so it is in the shared store.
        """
        directory = self.path(ref)
        if not self._intact(directory, ref.digest) and not self._fetch(ref):
            raise DataError(
                f"artifact {ref.name}/{ref.digest[:12]} is missing or damaged",
                where=str(directory),
                fix="run the night again: it recomputes what it can, and says what it cannot",
            )
        return directory

    def sweep(self) -> int:
        """Remove leftovers of killed writers, and copies of artifacts that were replaced in the shared store, where rows may be
        forgotten.

        Call only under the home's night lock. Returns the number of removed staging directories.
        """
        outdated = self.remote.outdated() if self.remote is not None else {}
        for name, digest in self.here():
            if digest in outdated:
                self._evict(self.root / name / digest)
        area = self.root / STAGING
        if not area.exists():
            return 0
        with _locked(area):
            left = [directory for directory in area.iterdir() if not is_held(directory)]
            for directory in left:
                shutil.rmtree(directory)
        return len(left)


@contextmanager
def staging(root: Path, name: str) -> Iterator[Path]:
    """Yield a new directory in the store's staging area, which is not swept while this process lives."""
    directory = root / STAGING / f"{name}-{uuid.uuid4().hex}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as locks:
        with _locked(directory.parent):  # else a sweep could come between
            directory.mkdir()
            locks.callback(shutil.rmtree, directory, ignore_errors=True)
            locks.enter_context(_locked(directory))
        yield directory


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Wait for a directory's kernel lock, and hold it in the block."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _directories(path: Path) -> list[str]:
    """Return the names of the directories in a directory, in order; none if it does not exist."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
