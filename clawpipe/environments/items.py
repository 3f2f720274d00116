"""Task items of an environment that do not change from night to night: train items, and the frozen benchmark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from clawpipe.config.night import EnvironmentConfig
from clawpipe.contracts.schema import schema_of
from clawpipe.environments.base import Environment, TaskItem, distinct_items
from clawpipe.environments.discovery import load_environment
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import publish_dataset
from clawpipe.store.refs import DatasetRef, StepResult


def make_task_items(store: Store, config: EnvironmentConfig) -> StepResult:
    """Train items, and the benchmark's held-out ones.

    Returns:
        output: train items. extras: "benchmark", absent where it has none.

    Raises:
        DataError: the environment has fewer.
    """
    environment = load_environment(config.name, config.options)
    train = environment.items("train", config.train_items, config.seed)
    frozen = environment.items("heldout", size, config.seed) if (size := benchmark_size(environment, config)) else []
    benchmark = {"benchmark": _published(store, frozen)} if frozen else {}
    made = len(train) + len(frozen)
    details = {"train": len(train), "benchmark": len(frozen)}
    return StepResult(output=_published(store, train), extras=dict(benchmark), rows_in=made, rows_out=made, details=details)


def benchmark_size(environment: Environment, config: EnvironmentConfig) -> int:
    """Items of the frozen benchmark; 0 where the environment has no items to spare for it."""
    distinct = distinct_items(environment, "heldout")
    spare = distinct is None or distinct >= config.benchmark_items + config.heldout_items
    return config.benchmark_items if spare else 0


def _published(store: Store, items: Sequence[TaskItem]) -> DatasetRef:
    rows = [item.as_row() for item in items]
    return publish_dataset(store, "task_items", [pa.Table.from_pylist(rows, schema=schema_of("task_items"))])
