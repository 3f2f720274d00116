"""Small files of a home that are replaced whole, such as the logs of ingest.

They lie below the home's directory or, where machines share the home, in the storage that these share. There a file is a folder of
versions, `<path>/<number>`: whoever creates a number has written it, and empties the older ones.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import VARIABLE, shared_objects
from clawpipe.core.store.objects import Objects
from clawpipe.errors import BusyError, ConfigError

_KEPT = 100  # numbers that stay taken; nobody is so many versions late


class ChangedError(BusyError):
    """Another machine has written the file since it was read."""


class HomeFile:
    """One file. What this object writes replaces what it has read last, and nothing that another machine has written since.

    Args:
        path: relative to the home.
        before_sharing: called with what the machine had of its own, before other machines find it.

    Raises:
        BusyError: by every method: the storage does not answer.
    """

    def __init__(self, home: Home, path: str, before_sharing: Callable[[bytes], None] = lambda _: None) -> None:
        self._own, self._path, self._before_sharing = home.root / path, path, before_sharing
        self._shared = None if home.is_of_a_sweep else shared_objects()
        self._number = 0  # of the version that was read last; 0: there was none

    @property
    def where(self) -> str:
        """The file's place, for messages."""
        return f"{self._shared.url}/{self._path}" if self._shared else str(self._own)

    def read(self) -> bytes | None:
        """Return the file's bytes; None if there is no file.

        Raises:
            ConfigError: the machine had such a file before it shared the home, and so had another one.
        """
        if self._shared is None:
            return self._own_bytes()
        self._number, data = _newest(self._shared, self._path)
        own = self._own_bytes()
        return data if own is None else self._moved(self._shared, own, data)

    def write(self, data: bytes) -> None:
        """Replace the file.

        Raises:
            ChangedError: another machine has written it since it was read.
        """
        if self._shared is None:
            write_atomic(self._own, data)
        else:
            self._number = _written(self._shared, self._path, data, self._number)

    def _own_bytes(self) -> bytes | None:
        with suppress(FileNotFoundError):
            return self._own.read_bytes()
        return None

    def _moved(self, shared: Objects, own: bytes, theirs: bytes | None) -> bytes:
        """Share what the machine had of its own. A killed move is ended by the next one."""
        if theirs is None:
            self._before_sharing(own)
            self._number = _written(shared, self._path, own, 0)
        elif theirs != own:
            what = f"this machine remembers something else in {self._path} than the home that it is to share"
            raise ConfigError(what, VARIABLE, "set CLAWPIPE_HOME to an empty directory, and import or forget again there")
        self._own.unlink()
        return own


def shared_files(home: Home, folder: str, suffix: str) -> list[str]:
    """Return the paths of the home's files in a folder, sorted, for `HomeFile`; also of those that are still to be shared."""
    own = {f"{folder}/{path.name}" for path in (home.root / folder).glob(f"[!.]*{suffix}")}
    shared = shared_objects()
    theirs = {f"{folder}/{name}" for name in shared.folders(folder)} if shared else set[str]()
    return sorted(own | theirs)


def _newest(objects: Objects, path: str) -> tuple[int, bytes | None]:
    """Return the number and the bytes of the last version; 0 and None if there is none."""
    while number := max(_sizes(objects, path), default=0):
        if data := objects.get(f"{path}/{number:08}"):
            return number, data  # else another machine has written one more, and emptied this one
    return 0, None


def _written(objects: Objects, path: str, data: bytes, after: int) -> int:
    """Write the version that follows `after`, and return its number.

    Older versions are emptied and keep their numbers, so that nobody takes one again; only those of long ago are removed.
    """
    number = after + 1
    made = objects.create_own(f"{path}/{number:08}", data)
    there = _sizes(objects, path)
    if made and max(there) >= number + _KEPT:  # its number was free because it is of long ago
        objects.drop(f"{path}/{number:08}")
        made = False
    if not made:
        raise ChangedError("another machine has written it meanwhile", f"{objects.url}/{path}", "run the command again")
    for older, size in there.items():
        if older <= number - _KEPT:
            objects.drop(f"{path}/{older:08}")
        elif older < number and size:
            objects.put(f"{path}/{older:08}", b"")
    return number


def _sizes(objects: Objects, path: str) -> dict[int, int]:
    return {int(name): size for name, size in objects.sizes(path).items() if name.isdigit()}
