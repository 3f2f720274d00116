"""The shared store of several homes, at any URL that fsspec knows, in the layout of a local store.

`URL/<name>/<digest>/` holds an artifact's files and its `manifest.json`, which is written last: without it the artifact is
invisible, and another writer of the same artifact completes it. `URL/.replaced/<digest>` holds the digest of its replacement.

Objects are created, never changed: the first of several writers of an object wins. Every read is checked by its sha256. Errors of
backends are raised as clawpipe's errors.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from clawpipe.core.store.digests import sha256_bytes, sha256_file
from clawpipe.core.store.files import MANIFEST, fsync, is_name, read_manifest
from clawpipe.core.store.permissions import make_shared, share
from clawpipe.core.store.storages import LOCAL_TROUBLE, storage_at, storage_error
from clawpipe.core.system import faults
from clawpipe.errors import ClawpipeError, ConfigError, DataError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

VARIABLE = "CLAWPIPE_STORE"
_REPLACED = ".replaced"
_WHAT = "the shared store"
_REPAIR = "publish it again where its bytes or its inputs are: that puts whole files in place of damaged ones"


class Remote:
    """The artifacts below one URL. Backends are imported and opened at the first use.

    Args:
        variable: the environment's variable that says the URL, for messages.

    Every method raises BusyError where the storage does not answer, and ConfigError where it is not there, refuses the
    credentials, or needs a library that is not installed.
    """

    def __init__(self, url: str, variable: str = VARIABLE) -> None:
        self.url, self._variable = url.rstrip("/"), variable

    @cached_property
    def _place(self) -> tuple[AbstractFileSystem, str]:
        return storage_at(self.url, self._variable, _WHAT)

    @property
    def _fs(self) -> AbstractFileSystem:
        system = self._place[0]
        system.invalidate_cache()  # to see what others have written since
        return system

    @property
    def _root(self) -> str:
        return self._place[1].rstrip("/")

    @property
    def _on_disk(self) -> bool:
        from fsspec.implementations.local import LocalFileSystem

        return isinstance(self._place[0], LocalFileSystem)

    def upload(self, directory: Path, name: str, digest: str) -> None:
        """Upload an artifact. An existing file is read, and written again only if it is damaged."""
        base = self._base(name, digest)
        entries = read_manifest(directory)["files"]
        files = {f"{base}/{entry['path']}": (directory / entry["path"], entry["sha256"]) for entry in entries}
        with self._asked():
            there = set(self._fs.find(base))
            for path, file in files.items():
                self._put(*file, path, there)
            faults.kill_point("store.before_manifest", name)
            self._put(directory / MANIFEST, digest, f"{base}/{MANIFEST}", there)
            for path in files.keys() - set(self._fs.find(base)):  # another home's sweep has removed files of a slow writer
                self._put(*files[path], path, ())

    def download(self, name: str, digest: str, directory: Path) -> bool:
        """Download an artifact's files into `directory`. False if there is none.

        Raises:
            DataError: it is incomplete or damaged.
        """
        manifest = self.manifest(name, digest)
        if manifest is None:
            return False
        (directory / MANIFEST).write_bytes(manifest)
        for entry in json.loads(manifest)["files"]:
            self._get(f"{self._base(name, digest)}/{entry['path']}", _inside(directory, entry["path"]), entry["sha256"])
        return True

    def manifest(self, name: str, digest: str) -> bytes | None:
        """Read the manifest of an artifact; None if there is none.

        Raises:
            DataError: it is damaged.
        """
        path = f"{self._base(name, digest)}/{MANIFEST}"
        with self._asked():
            try:
                data = self._read(path)
            except FileNotFoundError:
                return None
        if sha256_bytes(data) != digest:
            raise self._damaged(path)
        return data

    def has(self, name: str, digest: str) -> bool:
        """Whether the artifact exists; its bytes are not checked."""
        with self._asked(), suppress(FileNotFoundError):
            self._fs.info(f"{self._base(name, digest)}/{MANIFEST}")  # unlike `exists`, it separates "no" from "no answer"
            return True
        return False

    def artifact_sizes(self) -> dict[tuple[str, str], int]:
        """Return the size in bytes of every artifact, by name and digest."""
        return {artifact: sum(files.values()) for artifact, files in self._listed().items() if MANIFEST in files}

    def age(self, name: str, digest: str) -> float:
        """Return the seconds since the last write to an artifact, complete or not."""
        base = self._base(name, digest)
        with self._asked():
            times = [self._fs.modified(path).timestamp() for path in self._fs.find(base)]
        return time.time() - max(times, default=0.0)

    def remove(self, name: str, digest: str) -> bool:
        """Remove an artifact: first its manifest, then all files. False if there is none."""
        base = self._base(name, digest)
        with self._asked():
            files = self._fs.find(base)
            with suppress(FileNotFoundError):
                self._fs.rm_file(f"{base}/{MANIFEST}")
            faults.kill_point("store.before_files_go", name)
            with suppress(FileNotFoundError):
                self._fs.rm(base, recursive=True)
        return bool(files)

    def sweep(self, settling: float) -> list[str]:
        """Remove files without a manifest, from killed writers and killed removals.

        Returns files younger than `settling` seconds, which stay, because another home may be writing them: there are no locks
        between machines.
        """
        left = [artifact for artifact, files in self._listed().items() if MANIFEST not in files]
        outdated = self.outdated() if left else {}
        young = [artifact for artifact in left if artifact[1] not in outdated and self.age(*artifact) < settling]
        for artifact in left:
            if artifact not in young:
                self.remove(*artifact)
        return [self._base(*artifact) for artifact in young]

    def outdated(self) -> dict[str, str]:
        """Return the objects with replacements, by the replaced digest."""
        with self._asked():
            notes = {path.rpartition("/")[2]: path for path in sorted(self._fs.find(f"{self._root}/{_REPLACED}"))}
        return {old: path for old, path in notes.items() if is_name(old)}

    def replaced(self, known: Container[str] = ()) -> dict[str, str]:
        """Return new digests by old ones, without the known ones."""
        notes = {old: path for old, path in self.outdated().items() if old not in known}
        with self._asked():
            return {old: self._read(path).decode() for old, path in notes.items()}

    def replace(self, old: str, new: str) -> str:
        """Record the replacement of an artifact. Returns the recorded one, which differs if another home was first."""
        path = f"{self._root}/{_REPLACED}/{old}"
        with self._asked(), tempfile.TemporaryDirectory() as directory:
            note = Path(directory) / "note"
            note.write_text(new)
            return new if self._create(note, path) else self._read(path).decode()

    def _base(self, name: str, digest: str) -> str:
        return f"{self._root}/{name}/{digest}"

    def _listed(self) -> dict[tuple[str, str], dict[str, int]]:
        """Return the sizes of files, by artifact and by path in its folder."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        with self._asked():
            files = dict(self._fs.find(self._root, detail=True))
        for path, entry in sorted(files.items()):
            parts = path.removeprefix(f"{self._root}/").split("/", 2)
            if len(parts) == 3 and is_name(parts[0]) and is_name(parts[1]):
                found.setdefault((parts[0], parts[1]), {})[parts[2]] = entry["size"]
        return found

    def _read(self, path: str) -> bytes:
        return bytes(self._fs.cat_file(path))  # pyright: ignore[reportArgumentType]  # annotated as text as well

    def _put(self, source: Path, sha256: str, target: str, there: Container[str]) -> None:
        if (target in there or not self._create(source, target)) and self._sha256(target) != sha256:
            self._write(source, target)

    def _create(self, source: Path, target: str) -> bool:
        """Create a file atomically. False if it exists."""
        try:
            if self._on_disk:
                _copy(source, Path(target), Path(self._root), os.link)
            else:
                self._fs.put_file(str(source), target, mode="create")
        except OSError:  # servers report an existing file in several ways
            if not self._fs.exists(target):
                raise
            return False
        return True

    def _write(self, source: Path, target: str) -> None:
        if self._on_disk:
            _copy(source, Path(target), Path(self._root), os.replace)
        else:
            self._fs.put_file(str(source), target)

    def _sha256(self, path: str) -> str | None:
        try:
            with self._fs.open(path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()  # pyright: ignore[reportArgumentType]
        except FileNotFoundError:
            return None

    def _get(self, source: str, target: Path, sha256: str) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._asked():
            try:
                self._fs.get_file(source, str(target))
            except FileNotFoundError:
                raise self._damaged(source) from None
        if sha256_file(target) != sha256:
            raise self._damaged(source)

    def _damaged(self, path: str) -> DataError:
        where = f"{self.url}{path.removeprefix(self._root)}"
        return DataError("the shared store's copy of an artifact is missing a file or damaged", where, _REPAIR)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Raise errors of any backend as clawpipe's errors."""
        try:
            yield
        except ClawpipeError:
            raise
        except FileNotFoundError as error:
            raise ConfigError(
                f"the shared store is not there: {error}", self.url, f"make the bucket, or set {self._variable}"
            ) from error
        except PermissionError as error:
            fix = "set credentials that may list, read, write and delete there, in the variables that the storage's own tools read"
            raise ConfigError(f"the shared store refuses: {error}", self.url, fix) from error
        except Exception as error:  # each backend raises errors of its library
            if isinstance(error, OSError) and error.errno in LOCAL_TROUBLE:
                raise
            raise storage_error(self.url, error, _WHAT) from error


def _inside(directory: Path, path: str) -> Path:
    """Return the path of a manifest's file; a forged manifest must not lead out of the directory."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise DataError(f"a manifest names {path!r}, which lies outside of its artifact", str(directory), "remove that artifact")
    return directory / parts


def _copy(source: Path, target: Path, root: Path, move: Any) -> None:
    """Put a copy at `target` by `move` (`os.link` fails if it exists), and sync it with all new folders."""
    make_shared(target.parent)
    hidden = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        shutil.copyfile(source, hidden)
        share(hidden)
        fsync(hidden)
        move(hidden, target)
    finally:
        with suppress(FileNotFoundError):
            hidden.unlink()
    for folder in (target.parent, *target.parent.parents):
        fsync(folder)
        if folder == root.parent:
            break
