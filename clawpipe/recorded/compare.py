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
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clawpipe.errors import DataError
from clawpipe.json_types import JsonObject, Row
from clawpipe.policy.spec import policy_spec
from clawpipe.policy.version import adapter_ref, weights_ref
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.workers.pool import WorkerPool
from clawpipe.workers.request import Job, ScoreRequest

_MAKERS = {"adapter": adapter_ref, "model": weights_ref}  # by the stored name of a trained policy
SAMPLE = 32  # rows of a policy version
SAME, RATIO = 0.1, 0.1  # nats per token; distance of the mean ratio from 1
FAR = 2.0  # nats per token
_LIMIT = 20.0  # of a log-ratio, as in clawpipe.training.losses.policy
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


class Agreement(NamedTuple):
    """Figures over the sampled tokens of some rows, in nats: the means of the recorded log-probs, of the policy's own log-probs and
    of their distances, and the mean importance ratio exp(own - recorded), which is 1 if the policy sampled the tokens."""

    rows: int
    tokens: int
    recorded: float
    own: float
    difference: float
    ratio: float


def compare_recorded(
    store: Store, pool: WorkerPool, samples: DatasetRef, start: ModelRef, base: ModelRef, known: Sequence[ModelRef]
) -> StepResult:
    """Score a sample of the rows of each policy version and compare.

    The policy version of a row scores it if it is known or in the store, else `start` does. In the first case the figures must
    agree except for rounding, for any engine: a model in bfloat16 differs by 0.01 to 0.05 nats per token from itself in float32,
    raw from tempered log-probs at 0.8 by some 0.2, padding or another model by several nats; SAME and RATIO lie between. A missing
    policy may be older: policies some nights apart differ by tenths of a nat, and even another size of the model's family by about
    one, so staleness does not explain more than FAR.

    Args:
        samples: training rows of a method with ratios, with log-probs at the temperature of each row.
        base: stored policies that were trained from it can be loaded.
        known: policies that rows may name.

    Returns:
        rows_in: of samples; details: "versions", by policy version the figures of `Agreement` and `scored_by`; "warnings".

    Raises:
        DataError: a version differs more; the message holds the figures.
    """
    chosen = _chosen(store, samples)
    there = named_policies(store, chosen.keys(), [start, base, *known], base)
    found: JsonObject = {}
    for version, rows in chosen.items():
        policy = there.get(version, start)
        figures = agreement(rows, score_rows(store, pool, policy, [_asked(row) for row in rows]))
        found[version] = figures._asdict() | {"scored_by": policy.policy_version}
        require_agreement(figures, version, policy.policy_version)
    strangers = [version for version in found if version not in there]
    warnings = [_warning(version, found[version]) for version in strangers]
    return StepResult(rows_in=samples.rows, rows_out=samples.rows, details={"versions": found, "warnings": warnings})


def agreement(rows: Sequence[Mapping[str, Any]], scored: Sequence[np.ndarray]) -> Agreement:
    """Compute the figures of rows with recorded `logprobs` and a `loss_mask` from a policy's own log-probs of the same tokens."""
    masks = [np.asarray(row["loss_mask"], bool) for row in rows]
    recorded = np.concatenate([np.asarray(row["logprobs"], np.float64)[mask] for row, mask in zip(rows, masks, strict=True)])
    own = np.concatenate([values.astype(np.float64)[mask] for values, mask in zip(scored, masks, strict=True)])
    ratio = np.exp(np.clip(own - recorded, -_LIMIT, _LIMIT))
    figures = [recorded.mean(), own.mean(), np.abs(own - recorded).mean(), ratio.mean()]
    return Agreement(len(rows), len(own), *(round(float(value), 6) for value in figures))


def require_agreement(figures: Agreement, version: str, asked: str) -> None:
    """Raise if recorded log-probs cannot be those of policy `version`, given the figures of the comparison with policy `asked`.

    Raises:
        DataError: see `compare_recorded`.
    """
    same = version == asked
    off = figures.difference > (SAME if same else FAR) or (same and abs(figures.ratio - 1) > RATIO)
    if not off:
        return
    what = (
        f"{figures.tokens} recorded log-probs by policy {version} are {figures.difference:.2f} nats per token from "
        f"{'its own' if same else f'those of policy {asked}'} (mean ratio {figures.ratio:.3g})"
    )
    bound = f"{SAME} and a ratio of 1 +- {RATIO} are what rounding explains" if same else f"more than {FAR} is no staleness"
    fix = "name the policy that sampled, its temperature and the kind of its log-probs (clawpipe ingest), or use train.method: sft"
    raise DataError(f"{what}: {bound}", "samples.logprobs", fix)


def _chosen(store: Store, samples: DatasetRef) -> dict[str, list[Row]]:
    """Draw SAMPLE rows of each policy version, by a digest of their ids."""
    files = [pq.ParquetFile(file) for file in dataset_files(store, samples)]
    names = [row for file in files for row in file.read(columns=_COLUMNS[:2]).to_pylist()]
    by_version: dict[str, list[str]] = {}
    for row in sorted(names, key=lambda row: hashlib.sha256(row["trajectory_id"].encode()).digest()):
        by_version.setdefault(row["policy_version"], []).append(row["trajectory_id"])
    wanted = pa.array([name for drawn in by_version.values() for name in drawn[:SAMPLE]], pa.string())
    chosen: dict[str, list[Row]] = {version: [] for version in sorted(by_version)}
    for file in files:
        for batch in file.iter_batches(columns=_COLUMNS):
            for row in batch.filter(pc.is_in(batch["trajectory_id"], wanted)).to_pylist():  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
                chosen[row["policy_version"]].append(row)
    return chosen


def _asked(row: Mapping[str, Any]) -> Asked:
    return Asked(row["token_ids"], np.asarray(row["loss_mask"], bool), row["temperature"])


def _warning(version: str, figures: Mapping[str, Any]) -> str:
    return (
        f"policy {version} is not here: the log-probs of its rows are {figures['difference']:.2f} nats per token from those of the "
        f"policy that training starts from (mean ratio {figures['ratio']:.3g})"
    )
