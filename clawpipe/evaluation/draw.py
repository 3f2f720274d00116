"""The items that a night's verdict rests on: such as no night has looked at, as far as there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa

from clawpipe.config.night import EnvironmentConfig
from clawpipe.contracts.schema import schema_of
from clawpipe.environments.base import Environment, TaskItem, distinct_items
from clawpipe.environments.discovery import load_environment
from clawpipe.environments.items import benchmark_size
from clawpipe.errors import DataError
from clawpipe.evaluation.ledger import freshness
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, publish_dataset, publish_files, read_dataset
from clawpipe.store.refs import DatasetRef, StepResult


def draw_heldout(
    store: Store, items: DatasetRef, benchmark: DatasetRef | None, config: EnvironmentConfig, seen: Mapping[str, int]
) -> StepResult:
    """Draw `config.heldout_items` held-out items, those of the least looked-at identities. Equal arguments draw equal items.

    Args:
        items: the train items.
        benchmark: held-out items that are the same every night; the draw leaves their identities alone.
        config: of the environment.
        seen: identity to the number of nights that have looked at it; see `ledger.Ledger.seen`.

    Returns:
        output: the drawn items. extras: "all", the items of all three datasets, which training data is kept apart from.
        details: identities, fresh and looks as in `Freshness`; available: identities that there are to draw from, None without end.

    Raises:
        DataError: the environment has fewer items, or an identity stands on both sides.
    """
    environment = load_environment(config.name, config.options)
    pool = _pool(environment, config, len(seen))
    drawn = draw(pool, config.heldout_items, seen)
    table = pa.Table.from_pylist([item.as_row() for item in drawn], schema=schema_of("task_items"))
    output = publish_dataset(store, "task_items", [table])
    parts = [ref for ref in (items, benchmark, output) if ref is not None]
    _require_apart(store, parts[0], parts[1:], config.name)
    everything = publish_files(
        store, "task_items", [file for ref in parts for file in dataset_files(store, ref)], parents=[ref.digest for ref in parts]
    )
    told = freshness((item.identity for item in drawn), dict(seen)).model_dump()
    details = told | {"available": _available(environment, config, pool)}
    return StepResult(output=output, extras={"all": everything}, rows_in=output.rows, rows_out=output.rows, details=details)


def draw(pool: Sequence[TaskItem], count: int, seen: Mapping[str, int]) -> list[TaskItem]:
    """`count` items of the pool, in its order, from each slice as many as among its first `count`.

    Within a slice, one item of each identity comes before a second of any, and of those the least looked-at first, and of those
    the first of the pool.
    """
    wanted = Counter(item.slice for item in pool[:count])
    repeats: Counter[str] = Counter()
    ranked = []
    for position, item in enumerate(pool):
        ranked.append((repeats[item.identity], seen.get(item.identity, 0), position))
        repeats[item.identity] += 1
    drawn = []
    for *_, position in sorted(ranked):
        if wanted[pool[position].slice] > 0:
            wanted[pool[position].slice] -= 1
            drawn.append(position)
    return [pool[position] for position in sorted(drawn)]


def _pool(environment: Environment, config: EnvironmentConfig, seen: int) -> list[TaskItem]:
    """The held-out items but for the benchmark's identities: enough for every slice to find as many unseen ones as it needs."""
    frozen, distinct = benchmark_size(environment, config), distinct_items(environment, "heldout")
    fewest = frozen + config.heldout_items
    enough = fewest + seen + config.heldout_items
    count = fewest if distinct == 0 else enough if distinct is None else max(fewest, min(distinct, enough))
    items = environment.items("heldout", count, config.seed)
    kept_out = {item.identity for item in items[:frozen]}
    return [item for item in items if item.identity not in kept_out]


def _available(environment: Environment, config: EnvironmentConfig, pool: Sequence[TaskItem]) -> int | None:
    distinct = distinct_items(environment, "heldout")
    if distinct == 0:
        return len({item.identity for item in pool})
    return None if distinct is None else distinct - benchmark_size(environment, config)


def _require_apart(store: Store, train: DatasetRef, heldout: Sequence[DatasetRef], name: str) -> None:
    held = {identity for ref in heldout for identity in _identities(store, ref)}
    if both := held & _identities(store, train):
        raise DataError(f"{min(both)!r} is a train item and a held-out one", name, "split by identity, see docs/environments.md")


def _identities(store: Store, items: DatasetRef) -> set[str]:
    return set(read_dataset(store, items, ["identity"])["identity"].to_pylist())
