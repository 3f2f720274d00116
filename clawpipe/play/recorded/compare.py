"""Compare recorded log-probs with those of the policies themselves, before training on them.

Importance ratios are computed from recorded log-probs. If these have another kind, temperature or model, or are placeholders, the
ratios are wrong, and training fails in silence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.contracts.logprobs import UNSAMPLED
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_batches
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.errors import DataError
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.version import adapter_ref, weights_ref
from clawpipe.play.recorded.agreement import agreement, bound_for, require_agreement
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import Job, ScoreRequest

_MAKERS = {"adapter": adapter_ref, "model": weights_ref}  # by the stored name of a trained policy
_ABSENT = "absent_policies"  # in the details of a step's result
SAMPLE = 32  # rows of a policy version
_COLUMNS = ["trajectory_id", "policy_version", "token_ids", "loss_mask", "logprobs", "temperature"]


@dataclass(frozen=True)
class Asked:
    """A row [T] to score at the True positions of `mask`, at a temperature."""

    ids: Sequence[int]
    mask: np.ndarray
    temperature: float


def score_rows(store: Store, pool: WorkerPool, policy: ModelRef, rows: Sequence[Asked]) -> list[np.ndarray]:
    """Compute the log-probs float32 [T] of each row under the policy, in nats at the row's temperature; 0 outside of the mask.

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
    """Return the policies that can be loaded, by version: known ones, or ones in the store that were trained from `base`."""
    found = {policy.policy_version: policy for policy in known}
    if missing := set(versions) - set(found):
        found |= {policy.policy_version: policy for policy in _stored(store, base) if policy.policy_version in missing}
    return {version: found[version] for version in sorted(versions) if version in found}


def _stored(store: Store, base: ModelRef) -> Iterable[ModelRef]:
    for name, digest in store.names():
        with suppress(OSError, KeyError, DataError, json.JSONDecodeError, UnicodeDecodeError):
            manifest = store.manifest(name, digest) if name in _MAKERS else {}
            if manifest.get("kind") == "model" and manifest["base"] == base.base and manifest["calls"] == base.tool_call_format:
                yield _MAKERS[name](base, digest, ())


def absent(versions: Collection[str], there: Collection[str], base: ModelRef) -> JsonObject:
    """Return details that say which policies were looked for in vain; none if all were found."""
    missing = sorted(set(versions) - set(there))
    return {_ABSENT: {"versions": missing, "base": base.model_dump(mode="json")}} if missing else {}


def are_still_absent(store: Store, result: StepResult) -> bool:
    """Whether each policy that a step looked for in vain is still not in the store: else the step comes to another result."""
    said = result.details.get(_ABSENT)
    return said is None or not named_policies(store, said["versions"], (), ModelRef.model_validate(said["base"]))


def compare_recorded(
    store: Store, pool: WorkerPool, samples: DatasetRef, start: ModelRef, base: ModelRef, known: Sequence[ModelRef]
) -> StepResult:
    """Score a sample of the rows of each policy version and compare.

    The policy version of a row scores it if it is known or in the store, else `start` does. In the first case the figures of all
    rows and of each must agree except for rounding in bfloat16, the coarsest that engines compute in; see
    `clawpipe.play.recorded.agreement`. A missing policy may be older: policies some nights apart differ by tenths of a nat, and
    even another size of the model's family by about one, so staleness does not explain more than FAR.

    Args:
        samples: training rows of a method with ratios, with log-probs at the temperature of each row.
        base: stored policies that were trained from it can be loaded.
        known: policies that rows may name.

    Returns:
        rows_in: of samples; details: "versions", by policy version the figures of `Agreement` and `scored_by`; "warnings"; and see
        `absent`.

    Raises:
        DataError: a version differs more; the message holds the figures.
    """
    chosen = _chosen(store, samples)
    there = named_policies(store, chosen.keys(), [start, base, *known], base)
    found: JsonObject = {}
    for version, rows in chosen.items():
        policy = there.get(version, start)
        figures = agreement(rows, score_rows(store, pool, policy, [_asked(row) for row in rows]))
        found[version] = figures.summary(bound_for(policy)) | {"scored_by": policy.policy_version}
        require_agreement(figures, version, policy.policy_version, bound_for(policy))
    strangers = [version for version in found if version not in there]
    warnings = [_warning(version, found[version]) for version in strangers]
    details = {"versions": found, "warnings": warnings} | absent(chosen, there, base)
    return StepResult(rows_in=samples.rows, rows_out=samples.rows, details=details)


def _chosen(store: Store, samples: DatasetRef) -> dict[str, list[Row]]:
    """Draw SAMPLE rows of each policy version, by a digest of their ids; what no policy sampled has no log-probs to compare."""
    drawn: dict[str, list[str]] = {}
    for batch in dataset_batches(store, samples, _COLUMNS[:2]):
        by_version: dict[str, list[str]] = {}
        for row in batch.to_pylist():
            by_version.setdefault(row["policy_version"], []).append(row["trajectory_id"])
        for version, names in by_version.items():
            if version != UNSAMPLED:
                drawn[version] = nsmallest(SAMPLE, chain(drawn.get(version, ()), names), key=_lot)
    wanted = pa.array([name for names in drawn.values() for name in names], pa.string())
    chosen: dict[str, list[Row]] = {version: [] for version in sorted(drawn)}
    for batch in dataset_batches(store, samples, _COLUMNS):
        for row in batch.filter(pc.is_in(batch["trajectory_id"], wanted)).to_pylist():  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
            chosen[row["policy_version"]].append(row)
    return chosen


def _lot(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _asked(row: Mapping[str, Any]) -> Asked:
    return Asked(row["token_ids"], np.asarray(row["loss_mask"], bool), row["temperature"])


def _warning(version: str, figures: Mapping[str, Any]) -> str:
    return (
        f"policy {version} is not here: the log-probs of its rows are {figures['difference']:.2f} nats per token from those of the "
        f"policy that training starts from (mean ratio {figures['ratio']:.3g})"
    )
