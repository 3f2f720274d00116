"""Ask policies about the tokens of rows, and find the policies that rows name."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from clawpipe.errors import DataError
from clawpipe.policy.spec import policy_spec
from clawpipe.policy.version import adapter_ref, weights_ref
from clawpipe.store.artifacts import Store
from clawpipe.store.refs import ModelRef
from clawpipe.workers.pool import WorkerPool
from clawpipe.workers.request import Job, ScoreRequest

_MAKERS = {"adapter": adapter_ref, "model": weights_ref}  # by the name under which a trained policy is stored


@dataclass(frozen=True)
class Asked:
    """A row [T] whose tokens at the true positions of `mask` a policy is asked about, at a temperature."""

    ids: Sequence[int]
    mask: np.ndarray
    temperature: float


def score_rows(store: Store, pool: WorkerPool, policy: ModelRef, rows: Sequence[Asked]) -> list[np.ndarray]:
    """Log-probs float32 [T] of each row under the policy, in nats at the row's temperature; 0 outside of its mask.

    Raises:
        DataError: the policy is missing or damaged.
        BusyError: a worker was killed.
    """
    spec = policy_spec(store, policy)

    def score(row: Asked) -> np.ndarray:
        start = int(np.flatnonzero(row.mask)[0])
        request = ScoreRequest(policy=spec, ids=list(map(int, row.ids)), start=start, temperature=row.temperature)
        scored = np.zeros(len(row.ids), np.float32)
        scored[start:] = pool.run(Job(request=request))
        return np.where(row.mask, scored, np.float32(0))

    with ThreadPoolExecutor(pool.size) as threads:
        return list(threads.map(score, rows))


def named_policies(store: Store, versions: Collection[str], known: Iterable[ModelRef], base: ModelRef) -> dict[str, ModelRef]:
    """Those of some policy versions that can be loaded, by version: a known one, or one that the store holds beside `base`."""
    found = {policy.policy_version: policy for policy in known}
    if missing := set(versions) - set(found):
        found |= {policy.policy_version: policy for policy in _stored(store, base) if policy.policy_version in missing}
    return {version: found[version] for version in sorted(versions) if version in found}


def _stored(store: Store, base: ModelRef) -> Iterable[ModelRef]:
    for name, digest in store.names():
        with suppress(OSError, KeyError, DataError, json.JSONDecodeError, UnicodeDecodeError):
            facts = store.manifest(name, digest) if name in _MAKERS else {}
            if facts.get("kind") == "model" and facts["base"] == base.base and facts["calls"] == base.calls:
                yield _MAKERS[name](base, digest, ())
