"""Who runs in a home: nights of several models at once, of one model one at a time, and none while data are removed.

locks/night.lock          held by all nights together; alone by whoever removes data
locks/night-<model>.lock  held by the model's night
locks/nights.lock         held for a moment, while a night begins or ends
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from clawpipe.core.store.files import exclusive, is_held, together
from clawpipe.core.store.home import Home

NIGHT_LOCK, RUN_LOCK = "night.lock", "run.lock"


@contextmanager
def run_held(home: Home, model: str) -> Iterator[None]:
    """Hold a home for the command that runs a model's night, from before servers start.

    Raises:
        InUseError: another command runs the model's night, or a sweep.
    """
    what = f"the home {home.root}"
    with together(home.locks / RUN_LOCK, what), exclusive(home.locks / f"run-{model}.lock", what):
        yield


@contextmanager
def night_held(home: Home, model: str) -> Iterator[None]:
    """Hold a model's nights in this home for the length of the block.

    Raises:
        InUseError: another night for the model runs, or data are being removed.
    """
    with ExitStack() as stack:
        with _nobody_begins_or_ends(home):
            stack.enter_context(together(home.locks / NIGHT_LOCK, f"the home {home.root}"))
            stack.enter_context(exclusive(_lock_of(home, model), f"the model {model} of the home {home.root}"))
        yield


@contextmanager
def if_alone(home: Home, model: str) -> Iterator[bool]:
    """Let no night begin or end for the length of the block. Yields whether the model's night is the only one that runs."""
    with _nobody_begins_or_ends(home):
        others = set(home.locks.glob("night-*.lock")) - {_lock_of(home, model)}
        yield not any(map(is_held, others))


def _nobody_begins_or_ends(home: Home) -> AbstractContextManager[None]:
    return exclusive(home.locks / "nights.lock", f"the nights of the home {home.root}", wait=True)


def _lock_of(home: Home, model: str) -> Path:
    return home.locks / f"night-{model}.lock"
