"""The accelerators that heavy steps wait for: as many of these run at a time as there are accelerators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency

from tasks.cluster import Accelerators, accelerators

GPU_LIMIT = "gpu"  # Prefect's limit for this machine, made with one slot; those of clusters begin with its name
_LEASE_SECONDS = 60.0  # a killed holder frees the limit after this long; a living one renews it


@contextmanager
def accelerator() -> Iterator[None]:
    """Wait until the accelerators that a step takes are free, and hold them in the block: the cluster's where there is one."""
    found = accelerators()
    name, slots = (_sized(found), min(found.taken, found.number)) if found else (GPU_LIMIT, 1)
    with concurrency(name, occupy=slots, strict=True, lease_duration=_LEASE_SECONDS, raise_on_lease_renewal_failure=False):
        yield


def _sized(found: Accelerators) -> str:
    """Return the name of a cluster's limit, after its number was set to what the cluster has now."""
    name = f"{GPU_LIMIT}-{re.sub(r'[^0-9A-Za-z]+', '-', found.address)}"
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(name, limit=found.number)
    return name
