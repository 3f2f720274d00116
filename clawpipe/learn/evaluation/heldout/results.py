"""Publish the results of models on held-out conversations and preference pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult

_NONE: Mapping[str, float] = {}


def publish_results(
    store: Store, rows: Sequence[Row], items: DatasetRef, policy: ModelRef, figures: Mapping[str, float] = _NONE
) -> StepResult:
    """Publish `eval_results` of held-out conversations or pairs; an item whose figure is not finite counts for no model."""
    parents = [items.digest, policy.digest]
    table = pa.Table.from_pylist(list(rows), schema=schema_of("eval_results"))
    output = publish_dataset(store, "eval_results", [table], parents=parents)
    errored = sum(row["error"] is not None for row in rows)
    return StepResult(
        output=output,
        extras={"trajectories": items},
        rows_in=len(rows),
        rows_out=len(rows) - errored,
        filtered={"not finite": errored} if errored else {},
        details={"success": sum(bool(row["success"]) for row in rows), "items": len(rows), **figures},
    )
