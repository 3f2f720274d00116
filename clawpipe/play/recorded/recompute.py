"""Compute log-probs for rows without usable recorded ones.

Recorded tokens with raw or unknown log-probs, or with none at a known temperature, get those of the policy version that sampled
them, at the sampling temperature, if that policy is available. Rendered text was not sampled by a policy: it gets the log-probs of
the policy in training, with which a teacher's log-probs are then compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.logprobs import SAMPLED_AT, kind_of, temperature_of
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.play.recorded.agreement import agreement, bound_for, require_agreement
from clawpipe.play.recorded.compare import SAMPLE, Asked, absent, named_policies, score_rows
from clawpipe.play.workers.pool import WorkerPool

RECORDED, TEXT = "log-probs recomputed", "text scored"
_BATCH = 256
_NARROW = ["policy_version", "source", "logprobs_kind", "temperature", "tokens"]
_OF_NONE = [*_NARROW, "extra"]  # which says whether absent log-probs can be computed


def recompute_logprobs(
    store: Store,
    pool: WorkerPool,
    trajectories: DatasetRef,
    start: ModelRef,
    base: ModelRef,
    known: Sequence[ModelRef],
    *,
    text: bool,
    max_tokens: int,
) -> StepResult:
    """Add log-probs to the rows that lack them, in the order of the rows; return the dataset itself if there are none to add.

    Args:
        start: the policy that scores rendered text, at temperature 1.
        base: stored policies that were trained from it can be loaded.
        known: policies that rows may name.
        text: whether rendered text is scored.
        max_tokens: longer rows stay as they are, because curation filters them.

    Returns:
        details: the number of rows that got log-probs, by kind; and see `clawpipe.play.recorded.compare.absent`.

    Raises:
        DataError: raw log-probs are not those of the policy that the rows name.
    """
    files = dataset_files(store, trajectories)
    narrow = [row for file in files for row in _narrow(file)]
    versions = {row["policy_version"] for row in narrow if _lacks_its_own(row)}
    there = named_policies(store, versions, [start, base, *known], base)
    missing = absent(versions, there, base)
    if not there and not (text and any(row["tokens"] == "none" for row in narrow)):
        return StepResult(output=trajectories, rows_in=trajectories.rows, rows_out=trajectories.rows, details=missing)
    work = _Work(store, pool, there, start if text else None, max_tokens)
    batches = (work.batch(batch) for file in files for batch in pq.ParquetFile(file).iter_batches(_BATCH))
    parents = [trajectories.digest, *(policy.digest for policy in (*there.values(), start))]
    output = publish_dataset(store, trajectories.name, rechunk(batches, schema_of("trajectories")), parents=parents)
    return StepResult(output=output, rows_in=trajectories.rows, rows_out=output.rows, details=work.counts | missing)


class _Work:
    """Recomputes a dataset batch by batch."""

    def __init__(
        self, store: Store, pool: WorkerPool, there: Mapping[str, ModelRef], text: ModelRef | None, max_tokens: int
    ) -> None:
        self._store, self._pool, self._there, self._text, self._max_tokens = store, pool, there, text, max_tokens
        self._checked: set[str] = set()
        self.counts = {RECORDED: 0, TEXT: 0}

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        table = conformed(pa.Table.from_batches([batch]), schema_of("trajectories"))
        rows = table.select([*_OF_NONE, "token_ids", "loss_mask", "logprobs", "rendered_ids", "rendered_mask"]).to_pylist()
        changed = self._recorded(rows) | self._texts(rows)
        for name in sorted({name for values in changed.values() for name in values}):
            column = table[name].to_pylist()
            for place, values in changed.items():
                column[place] = values.get(name, column[place])
            index = table.schema.get_field_index(name)
            table = table.set_column(index, table.schema.field(index), pa.array(column, table.schema.field(index).type))
        return table.combine_chunks().to_batches()[0]

    def _recorded(self, rows: Sequence[Mapping[str, Any]]) -> dict[int, Row]:
        found: dict[int, Row] = {}
        for version, policy in self._there.items():
            places = [place for place, row in enumerate(rows) if row["policy_version"] == version and self._is_due(row)]
            asked = [_asked(rows[place], "token_ids", "loss_mask", rows[place]["temperature"]) for place in places]
            self._check_raw([rows[place] for place in places], version, policy)
            for place, values in zip(places, score_rows(self._store, self._pool, policy, asked), strict=True):
                found[place] = {"logprobs": values, "logprobs_kind": "tempered"}
        self.counts[RECORDED] += len(found)
        return found

    def _is_due(self, row: Mapping[str, Any]) -> bool:
        return _lacks_its_own(row) and len(row["token_ids"]) <= self._max_tokens

    def _check_raw(self, rows: Sequence[Mapping[str, Any]], version: str, policy: ModelRef) -> None:
        """Check the first raw rows of a version against the policy at temperature 1; if they differ, it did not sample them."""
        raw = [row for row in rows if row["logprobs_kind"] == "raw"][:SAMPLE]
        if not raw or version in self._checked:
            return
        self._checked.add(version)
        asked = [_asked(row, "token_ids", "loss_mask", 1.0) for row in raw]
        figures = agreement(raw, score_rows(self._store, self._pool, policy, asked))
        require_agreement(figures, version, policy.policy_version, bound_for(policy))

    def _texts(self, rows: Sequence[Mapping[str, Any]]) -> dict[int, Row]:
        if self._text is None:
            return {}
        places = [place for place, row in enumerate(rows) if row["tokens"] == "none" and self._is_readable(row)]
        asked = [_asked(rows[place], "rendered_ids", "rendered_mask", 1.0) for place in places]
        scored = score_rows(self._store, self._pool, self._text, asked)
        self.counts[TEXT] += len(places)
        version = self._text.policy_version
        return {
            place: {"rendered_logprobs": values, "rendered_policy": version} for place, values in zip(places, scored, strict=True)
        }

    def _is_readable(self, row: Mapping[str, Any]) -> bool:
        ids, mask = row["rendered_ids"], row["rendered_mask"]
        return ids is not None and len(ids) <= self._max_tokens and any(mask) and not mask[0]


def _lacks_its_own(row: Mapping[str, Any]) -> bool:
    """Whether recorded tokens need log-probs at their sampling temperature, which is known, and do not have them."""
    kind = kind_of(row["logprobs_kind"], row["source"])
    sampled_at = row["temperature"]
    if row["tokens"] != "recorded" or sampled_at <= 0:
        return False
    if kind == "none":
        return _says_temperature(row.get("extra"))
    return kind in ("raw", "unknown") and temperature_of(kind, sampled_at) != sampled_at


def _says_temperature(extra: str | None) -> bool:
    return extra is not None and SAMPLED_AT in extra and SAMPLED_AT in orjson.loads(extra)


def _asked(row: Mapping[str, Any], ids: str, mask: str, temperature: float) -> Asked:
    return Asked(row[ids], np.asarray(row[mask], bool), temperature)


def _narrow(file: Any) -> list[Row]:
    """Read what tells which rows lack log-probs; `extra`, which may be long, only where a row may need it."""
    table = conformed(pq.read_table(file, columns=_present(file, _NARROW)), _schema(_NARROW))
    if "none" in table["logprobs_kind"].to_pylist():
        table = conformed(pq.read_table(file, columns=_present(file, _OF_NONE)), _schema(_OF_NONE))
    return table.to_pylist()


def _present(file: Any, names: Sequence[str]) -> list[str]:
    there = pq.read_schema(file).names
    return [name for name in names if name in there]


def _schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema_of("trajectories").field(name) for name in names])
