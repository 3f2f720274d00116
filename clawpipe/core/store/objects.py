"""Small objects in the shared store that are no artifacts: created unless they exist, read, listed and removed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from clawpipe.core.store.remote import Remote

CONDITIONAL = {"s3", "s3a", "file", "local", "memory"}  # schemes whose `create` is tested to fail where an object exists


def is_conditional(url: str) -> bool:
    """Whether a storage at this URL creates an object only if it is absent."""
    return urlsplit(url).scheme in CONDITIONAL


class Objects(Remote):
    """Objects below one URL, by paths relative to it. Raises what `Remote` raises."""

    def create(self, path: str, data: bytes) -> bool:
        """Create an object whole. False if it exists."""
        with self._asked(), tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "object"
            file.write_bytes(data)
            return self._create(file, self._at(path))

    def create_own(self, path: str, data: bytes) -> bool:
        """Create an object whose content nobody else would write. True also if it holds this: the answer to a try was lost, and
        the storage's client has asked again, which was told that the object exists.
        """
        return self.create(path, data) or self.get(path) == data

    def put(self, path: str, data: bytes) -> None:
        """Create or replace an object."""
        with self._asked(), tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "object"
            file.write_bytes(data)
            self._write(file, self._at(path))

    def get(self, path: str) -> bytes | None:
        """Read an object; None if there is none."""
        with self._asked(), suppress(FileNotFoundError):
            return self._read(self._at(path))
        return None

    def all_in(self, folder: str) -> dict[str, bytes]:
        """Read the objects of a folder, by names; one that somebody removes meanwhile may be missing."""
        read: dict[str, bytes] = {}
        with self._asked():
            paths = self._names(folder)
            found = self._fs.cat_ranges(paths, None, None, on_error="return")  # `cat` would take brackets in a name for a pattern
            for path, data in zip(paths, cast("list[bytes | Exception]", found), strict=True):
                if isinstance(data, bytes):
                    read[path.rpartition("/")[2]] = data
                elif not isinstance(data, FileNotFoundError):
                    raise data
        return read

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder, sorted."""
        with self._asked():
            return [path.rpartition("/")[2] for path in self._names(folder)]

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes in bytes of the objects in a folder, by names."""
        with self._asked():
            found = cast("dict[str, dict[str, int]]", self._fs.find(self._at(folder), detail=True))
        return {path.rpartition("/")[2]: entry["size"] for path, entry in found.items()}

    def stamps(self, folder: str) -> dict[str, str]:
        """Return for each object below a folder, by its path relative to it, a text that another write of it would change."""
        with self._asked():
            found = cast("dict[str, dict[str, object]]", self._fs.find(self._at(folder), detail=True))
        return {path.removeprefix(f"{self._at(folder)}/"): _stamp(entry) for path, entry in sorted(found.items())}

    def written(self, path: str) -> float:
        """Return when an object was written, in seconds since 1970, by the storage's clock."""
        with self._asked():
            return self._fs.modified(self._at(path)).timestamp()

    def paths(self, folder: str) -> list[str]:
        """Return the paths of the objects below a folder, relative to it, sorted."""
        with self._asked():
            return [path.removeprefix(f"{self._at(folder)}/") for path in self._names(folder)]

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, sorted."""
        return sorted({path.partition("/")[0] for path in self.paths(folder)})

    def drop(self, path: str) -> None:
        """Remove an object, if there is one."""
        with self._asked(), suppress(FileNotFoundError):
            self._fs.rm_file(self._at(path))

    def flock(self, path: str) -> Path | None:
        """Return a path on the disk whose lock other machines see, too; None if the objects lie elsewhere."""
        return Path(self._at(path)) if self._on_disk else None

    def _names(self, folder: str) -> list[str]:
        paths = sorted(self._fs.find(self._at(folder)))
        return [path for path in paths if not path.rpartition("/")[2].startswith(".")]  # files that are being written

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"


def _stamp(entry: Mapping[str, object]) -> str:
    """Return what a storage lists of an object that is of one write of it: S3's ETag, a file's time and number."""
    known = ("size", "ETag", "mtime", "ino", "created")
    return " ".join(str(entry[name]) for name in known if name in entry)
