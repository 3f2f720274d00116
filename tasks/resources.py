"""What the steps of a running night share in this process: the store, the generation workers, the journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clawpipe.config.night import Runtime
from clawpipe.errors import ClawpipeError
from clawpipe.nights.journal import Journal
from clawpipe.rollouts.pool import WorkerPool
from clawpipe.store.artifacts import Store
from clawpipe.store.home import Home
from clawpipe.store.open import open_store


@dataclass(frozen=True)
class Resources:
    home: Home
    store: Store
    pool: WorkerPool
    journal: Journal
    runtime: Runtime


_open: list[Resources] = []


@contextmanager
def open_resources(home: Home, runtime: Runtime, journal: Journal) -> Iterator[Resources]:
    """Share resources with the tasks of this process for the length of a night."""
    with WorkerPool(runtime, journal.run_dir / "logs") as pool:
        _open.append(Resources(home, open_store(home), pool, journal, runtime))
        try:
            yield _open[-1]
        finally:
            _open.pop()


def resources() -> Resources:
    """Those of the night that runs in this process.

    Raises:
        ClawpipeError: none does.
    """
    if not _open:
        raise ClawpipeError("a step was run outside of a night", fix="start nights with `clawpipe run` or a deployment")
    return _open[-1]
