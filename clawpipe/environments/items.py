"""Task items of an environment as a dataset."""

from __future__ import annotations

import pyarrow as pa

from clawpipe.config.night import EnvironmentConfig
from clawpipe.contracts.schema import schema_of
from clawpipe.environments.discovery import load_environment
from clawpipe.errors import DataError
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import publish_dataset
from clawpipe.store.refs import StepResult


def make_task_items(store: Store, config: EnvironmentConfig) -> StepResult:
    """Train and held-out items.

    Raises:
        DataError: the environment has fewer, or an identity stands on both sides.
    """
    environment = load_environment(config.name, config.options)
    train = environment.items("train", config.train_items, config.seed)
    heldout = environment.items("heldout", config.heldout_items, config.seed)
    if both := {item.identity for item in train} & {item.identity for item in heldout}:
        raise DataError(
            f"{min(both)!r} is a train item and a held-out one", config.name, "split by identity, see docs/environments.md"
        )
    rows = [item.as_row() for item in (*train, *heldout)]
    output = publish_dataset(store, "task_items", [pa.Table.from_pylist(rows, schema=schema_of("task_items"))])
    return StepResult(
        output=output, rows_in=len(rows), rows_out=output.rows, details={"train": len(train), "heldout": len(heldout)}
    )
