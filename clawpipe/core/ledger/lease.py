"""A lock of objects, for storages without locks: a lease that its holder renews, and that others take over once it is still.

    <path>/<n>         lease number n was taken; whoever creates it holds the lock
    <path>/<n>.alive   a number that its holder counts up
    <path>/<n>.ended   its holder gave it back

No clocks are compared: a waiter takes over when it has seen no change in `<n>.alive` for `STILL_SECONDS` of its own.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from clawpipe.core.store.files import InUseError
from clawpipe.core.store.objects import Objects
from clawpipe.errors import ClawpipeError

STILL_SECONDS = 30.0  # a holder that shows no sign for so long is taken for dead
_RENEW_SECONDS = 3.0
_ASK_SECONDS = 0.5


@contextmanager
def lease(objects: Objects, path: str, what: str = "", waits: Callable[[str], None] | None = None) -> Iterator[Callable[[], bool]]:
    """Hold the lock. Without `what`, or with `waits`, wait for it as long as it takes.

    Yields whether it is held still: who was halted for too long may have been taken for dead.

    Args:
        what: what the lock is of, to tell who holds it.
        waits: called once with the holder's name if a living one has to be waited for.

    Raises:
        InUseError: with `what` alone: a holder shows that it lives.
    """
    number = _taken(objects, path, what, waits)
    stop = threading.Event()
    renewal = threading.Thread(target=_renew, args=(objects, f"{path}/{number:08}.alive", stop), daemon=True)
    renewal.start()
    try:
        yield lambda: not _is_overtaken(objects, path, number)
    finally:
        stop.set()
        renewal.join()
        objects.create(f"{path}/{number:08}.ended", b"")


def unended(objects: Objects, folder: str) -> list[str]:
    """Return the names of the locks in a folder whose last lease was not given back; its holder may be dead."""
    found: dict[str, set[str]] = {}
    for path in objects.paths(folder):
        lock, _, name = path.rpartition("/")
        found.setdefault(lock, set()).add(name)
    return sorted(lock for lock, names in found.items() if f"{max(filter(str.isdigit, names), default='')}.ended" not in names)


def _taken(objects: Objects, path: str, what: str, waits: Callable[[str], None] | None) -> int:
    """Take the next lease once the last one has ended or is still. Returns its number."""
    last, alive, since = -1, b"", time.monotonic()
    told = False
    while True:
        found = objects.names(path)
        number = max((int(name) for name in found if name.isdigit()), default=-1)
        ended = number < 0 or f"{number:08}.ended" in found
        sign = b"" if ended else objects.get(f"{path}/{number:08}.alive") or b""
        if (number, sign) != (last, alive):
            if what and number == last and not told:
                told = _tell(_in_use(objects, f"{path}/{number:08}", what), waits)
            last, alive, since = number, sign, time.monotonic()
        if ended or time.monotonic() - since > STILL_SECONDS:
            if _take(objects, path, number + 1):
                for name in found:
                    objects.drop(f"{path}/{name}")
                return number + 1
        else:
            time.sleep(_ASK_SECONDS)


def _tell(busy: InUseError, waits: Callable[[str], None] | None) -> bool:
    if waits is None:
        raise busy
    waits(busy.what)
    return True


def _in_use(objects: Objects, holder: str, what: str) -> InUseError:
    host, process, *_ = [*(objects.get(holder) or b"").decode().split(), "another machine", "?"]
    return InUseError(f"{what} is run by process {process} on {host}", objects.url, "wait until it ends, then try again")


def _take(objects: Objects, path: str, number: int) -> bool:
    """Create a lease. False if it exists, or if it existed and later ones have cleared it away since the caller looked."""
    mine = f"{path}/{number:08}"
    holder = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(8)}"  # containers may share names and numbers
    if not objects.create_own(mine, holder.encode()):
        return False
    if _is_overtaken(objects, path, number):
        objects.drop(mine)
        return False
    return True


def _is_overtaken(objects: Objects, path: str, number: int) -> bool:
    return any(name.isdigit() and int(name) > number for name in objects.names(path))


def _renew(objects: Objects, path: str, stop: threading.Event) -> None:
    count = 0
    while not stop.is_set():
        count += 1
        with suppress(ClawpipeError, OSError):  # the next one may come through, with new credentials say
            objects.put(path, str(count).encode())
        stop.wait(_RENEW_SECONDS)
