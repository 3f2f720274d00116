"""Import large libraries in four fifths of the usual time."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Switch the garbage collector off while a block imports: all that a library makes at its import lives as long as the process.

    The collector would walk the same objects again and again meanwhile: 1.4 of the 7 CPU-seconds of a worker's imports.
    What was imported is frozen, so that no later collection walks it either.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # or DuckDB's objects outlive it, and it says at the end of a command that they leaked
        if was_on:
            gc.enable()
