"""Task items of an environment as datasets: those to train on, and those of the frozen benchmark."""

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
    """Train items.

    Raises:
        DataError: the environment has fewer.
    """
    environment = load_environment(config.name, config.options)
    return _made(store, environment.items("train", config.train_items, config.seed))


def make_benchmark(store: Store, config: EnvironmentConfig) -> StepResult:
    """Held-out items that are the same every night, as long as the settings are: none where the environment has none to spare.

    Raises:
        DataError: the environment has fewer than it says.
    """
    environment = load_environment(config.name, config.options)
    return _made(store, environment.items("heldout", _spare(environment, config), config.seed))


def _spare(environment: Environment, config: EnvironmentConfig) -> int:
    """As many as the benchmark asks for if as many as the verdict asks for are left then."""
    distinct = distinct_items(environment, "heldout")
    enough = distinct is None or distinct >= config.benchmark_items + config.heldout_items
    return config.benchmark_items if enough else 0


def _made(store: Store, items: Sequence[TaskItem]) -> StepResult:
    output = publish_items(store, items)
    return StepResult(output=output, rows_in=output.rows, rows_out=output.rows)


def publish_items(store: Store, items: Sequence[TaskItem]) -> DatasetRef:
    """Task items in the order given."""
    rows = [item.as_row() for item in items]
    return publish_dataset(store, "task_items", [pa.Table.from_pylist(rows, schema=schema_of("task_items"))])
