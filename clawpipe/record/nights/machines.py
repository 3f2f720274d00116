"""Nights of a home that several machines share: one machine at a time runs a night, and another goes on with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from clawpipe.core.ledger.lease import lease, unended
from clawpipe.core.ledger.open import own_registry, registry_uri
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import VARIABLE, shared_objects
from clawpipe.core.store.objects import Objects
from clawpipe.errors import ConfigError
from clawpipe.record.nights.files import LINEAGE, run_dir

_NIGHTS, _LEASES = "nights", "leases"
_REMOVAL = "locks/removal"
_BEGUN = ("config.json", "night.json")  # night.json last: with it, the night is there
_ENDED = ("status.json", LINEAGE)  # the lineage last: with it, the night has a verdict; a report holds transcripts


@contextmanager
def held(home: Home, night: str) -> Iterator[None]:
    """Hold a night against the other machines of the home for the length of the block, and know what they know of all nights.

    Raises:
        InUseError: another machine runs the night.
        ConfigError: the machines share a home and no registry.
        BusyError: the storage does not answer.
    """
    shared = shared_objects()
    if shared is None:
        yield
        return
    _require_registry(home)
    with lease(shared, f"{_LEASES}/{night}", f"the night {night}"):
        with lease(shared, _REMOVAL):  # whoever removes data looks for nights once it has said so: one of the two sees the other
            pass
        bring_nights(home, shared)
        yield


def hold_machines(locks: ExitStack) -> None:
    """Hold a home against the nights of its other machines until `locks` are given back.

    Raises:
        InUseError: another machine runs a night, or removes data.
        BusyError: the storage does not answer.
    """
    if shared := shared_objects():
        locks.enter_context(lease(shared, _REMOVAL, "a removal of data"))
        for night in unended(shared, _LEASES):
            locks.enter_context(lease(shared, f"{_LEASES}/{night}", f"the night {night}"))


def bring_nights(home: Home, shared: Objects) -> None:
    """Copy the records of nights that other machines ran into this home; of a night that both have, what is shared is newer."""
    for night in shared.folders(_NIGHTS):
        found = shared.all_in(f"{_NIGHTS}/{night}")
        for name in (*_BEGUN, *_ENDED):
            file = run_dir(home, night) / name
            if name in found and not (file.exists() and file.read_bytes() == found[name]):
                write_atomic(file, found[name])


def share_night(home: Home, night: str) -> None:
    """Let the other machines of the home find what a night has settled when it began, and how it ended.

    Raises:
        BusyError: the storage does not answer.
    """
    if shared := shared_objects():
        for name in (*_BEGUN, *_ENDED):
            file = run_dir(home, night) / name
            if file.exists():
                shared.put(f"{_NIGHTS}/{night}/{name}", file.read_bytes())


def _require_registry(home: Home) -> None:
    if registry_uri(home) == own_registry(home):
        raise ConfigError(
            "machines that share a home need a registry that all of them reach",
            VARIABLE,
            "set MLFLOW_TRACKING_URI to a server's address or postgresql://...",
        )
