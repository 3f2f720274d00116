"""Nights of a home that several machines share: one machine at a time runs a night, and another goes on with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from clawpipe.core.ledger.lease import lease, unended
from clawpipe.core.ledger.open import own_registry, registry_uri
from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import VARIABLE, shared_objects
from clawpipe.core.store.objects import Objects
from clawpipe.errors import ConfigError
from clawpipe.record.nights.brought import BEGUN, ENDED, NIGHTS, bring_nights, have_seen
from clawpipe.record.nights.files import run_dir

_log = logging.getLogger(__name__)

_LEASES = "leases"
_REMOVAL = "locks/removal"


@contextmanager
def held(home: Home, night: str) -> Iterator[Callable[[], None]]:
    """Hold a night against the other machines of the home for the length of the block, and know what they know of all nights.

    Yields what lets the other machines find what the night has settled when it began, and how it ended. Where another machine has
    taken the night over, since this one was halted, it says so in the log, and leaves there what that one writes.

    Raises:
        InUseError: another machine runs the night.
        ConfigError: the machines share a home and no registry.
        BusyError: the storage does not answer.
    """
    shared = shared_objects()
    if shared is None:
        yield lambda: None
        return
    _require_registry(home)
    with lease(shared, f"{_LEASES}/{night}", f"the night {night}") as is_held:
        with lease(shared, _REMOVAL):  # whoever removes data looks for nights once it has said so: one of the two sees the other
            pass
        bring_nights(home, shared)
        yield lambda: _share(home, shared, night) if is_held() else _log.warning("another machine has taken over %s", night)


def hold_machines(home: Home, locks: ExitStack) -> None:
    """Hold a home against the nights of its other machines until `locks` are given back, and know what they know of all nights.

    Raises:
        InUseError: another machine runs a night, or removes data.
        BusyError: the storage does not answer.
    """
    if shared := shared_objects():
        locks.enter_context(lease(shared, _REMOVAL, "a removal of data"))
        for night in unended(shared, _LEASES):
            locks.enter_context(lease(shared, f"{_LEASES}/{night}", f"the night {night}"))
        bring_nights(home, shared)


def _share(home: Home, shared: Objects, night: str) -> None:
    for name in (*BEGUN, *ENDED):
        file = run_dir(home, night) / name
        if file.exists():
            shared.put(f"{NIGHTS}/{night}/{name}", file.read_bytes())
    have_seen(home, shared, night)


def _require_registry(home: Home) -> None:
    if registry_uri(home) == own_registry(home):
        raise ConfigError(
            "machines that share a home need a registry that all of them reach",
            VARIABLE,
            "set MLFLOW_TRACKING_URI to a server's address or postgresql://...",
        )
