"""Draw the held-out items of a night's verdict, preferring identities that no night has looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config.environment import Drawn
from clawpipe.core.config.quotas import quotas
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset, publish_files, read_dataset
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.errors import ConfigError, DataError
from clawpipe.learn.evaluation.verdict.verdict import Freshness
from clawpipe.play.environments.base import TaskItem, WithWarnings, distinct_items
from clawpipe.play.environments.labelled import LabelledEnvironment
from clawpipe.play.environments.several import OpenEnvironments, World, open_environments

_NOBODY: Mapping[str, Row] = {}


def make_task_items(store: Store, config: Drawn) -> StepResult:
    """Make the train items: of each environment its quota, one environment after the other.

    Raises:
        DataError: an environment has fewer items.
    """
    items: list[TaskItem] = []
    warnings: list[str] = []
    with open_environments(config) as environments:
        for environment, quota in _shares(environments, config.train_items, config):
            items += environment.items("train", quota, config.seed)
            warnings += environment.warnings() if isinstance(environment, WithWarnings) else []
    made = _publish(store, items)
    return made.model_copy(update={"details": {"warnings": warnings}}) if warnings else made


def require_slices(store: Store, items: DatasetRef, named: Collection[str]) -> StepResult:
    """Check that the train items have the slices that the settings weigh.

    Raises:
        ConfigError: they have no such slice.
    """
    there = set(read_dataset(store, items, ["slice"])["slice"].to_pylist())
    if unknown := sorted(set(named) - there):
        known = f"there are {', '.join(sorted(there))}" if there else "the night has no task items"
        raise ConfigError(f"no task item is of slice {unknown[0]}", "curation.slice_weights", known)
    return StepResult(output=items, rows_in=items.rows, rows_out=items.rows)


def make_benchmark(store: Store, config: Drawn) -> StepResult:
    """Make the benchmark: held-out items that stay the same while the settings do; of an environment that has none to spare none.

    Raises:
        DataError: an environment has fewer items than it says.
    """
    items: list[TaskItem] = []
    with open_environments(config) as environments:
        verdicts = quotas(config.heldout_items, config.weights)
        for (environment, quota), verdict in zip(_shares(environments, config.benchmark_items, config), verdicts, strict=True):
            items += environment.items("heldout", quota if _can_spare(environment, quota + verdict) else 0, config.seed)
    return _publish(store, items)


def _shares(environments: OpenEnvironments, total: int, config: Drawn) -> Iterator[tuple[World, int]]:
    """Yield each environment with its quota of a number of items."""
    yield from zip(environments, quotas(total, config.weights), strict=True)


def _can_spare(environment: World, count: int) -> bool:
    """Whether an environment has this many held-out items, so that enough remain for the verdict."""
    distinct = distinct_items(environment, "heldout")
    return distinct is None or distinct >= count


def _publish(store: Store, items: Sequence[TaskItem]) -> StepResult:
    output = publish_items(store, items)
    return StepResult(output=output, rows_in=output.rows, rows_out=output.rows)


def publish_items(store: Store, items: Sequence[TaskItem], owners: Mapping[str, Row] = _NOBODY) -> DatasetRef:
    """Publish task items in the given order; `owners` holds session_id and user_id of those that are somebody's, by item id.

    Raises:
        DataError: two of them have one id.
    """
    named = Counter(item.item_id for item in items)
    if twice := next((item for item in items if named[item.item_id] > 1), None):
        what = f"{named[twice.item_id]} items have the id {twice.item_id!r}, and their rollouts would be compared as those of one"
        raise DataError(what, twice.environment, "give each item an id of its own")
    rows = [item.as_row() | owners.get(item.item_id, {}) for item in items]
    return publish_dataset(store, "task_items", [pa.Table.from_pylist(rows, schema=schema_of("task_items"))])


def draw_heldout(
    store: Store, items: DatasetRef, benchmark: DatasetRef | None, config: Drawn, seen: Mapping[str, int]
) -> StepResult:
    """Draw `config.heldout_items` held-out items, of each environment its quota, from the identities with the fewest looks. Equal
    arguments draw equal items.

    Args:
        items: the train items.
        benchmark: held-out items that are the same every night, if there are any; their identities are not drawn.
        config: the environments' settings, with the night's seed.
        seen: for each identity the number of nights that have looked at it; see `looks.Looks.seen`.

    Returns:
        output: the drawn items. extras: "all", the items of all three datasets, against which training data is decontaminated.
        details: identities, fresh and looks as in `Freshness`; available: number of identities to draw from, None if unlimited,
        absent if the environment does not say; left: those of them that stay fresh after this draw; known: the number of identities
        in `seen`. Of several environments the last three, and `fresh`, by label, as `supplies`.

    Raises:
        DataError: an environment has fewer items, or an identity is on both sides.
    """
    frozen = _identities(store, benchmark) if benchmark else set()
    with open_environments(config) as environments:
        name = environments.name
        shares = _shares(environments, config.heldout_items, config)
        parts = [_part(environment, quota, config.seed, frozen, seen) for environment, quota in shares]
    drawn = [item for part in parts for item in part.drawn]
    asked = {item.identity for item in drawn}
    heldout = frozen | asked
    if both := heldout & _identities(store, items):
        fix = "split by identity, see docs/environments.md"
        raise DataError(f"{min(both)!r} is both a train item and a held-out item", name, fix)
    output = publish_items(store, drawn)
    details = Freshness.of(asked, seen).model_dump() | _supplies(parts, asked)
    extras = {"all": _together(store, [items, *([benchmark] if benchmark else []), output])}
    return StepResult(output=output, extras=dict(extras), rows_in=output.rows, rows_out=output.rows, details=details)


class _Part(NamedTuple):
    """The held-out items of one environment, those that they were drawn from, and what is known of its supply."""

    environment: World
    quota: int
    drawn: list[TaskItem]
    pool: list[TaskItem]
    seen: Mapping[str, int]
    supply: Mapping[str, int | None]


def _part(environment: World, quota: int, seed: int, frozen: set[str], seen: Mapping[str, int]) -> _Part:
    if isinstance(environment, LabelledEnvironment):
        frozen = set(filter(environment.has, frozen))
        seen = {identity: looks for identity, looks in seen.items() if environment.has(identity)}
    pool, supply = _pool(environment, quota, seed, frozen, len(seen))
    return _Part(environment, quota, draw(pool, quota, seen), pool, seen, supply)


def _supplies(parts: Sequence[_Part], asked: Collection[str]) -> JsonObject:
    """Return what is known of the identities that are left to draw from."""
    if not isinstance(parts[0].environment, LabelledEnvironment):
        return _supply(parts[0], asked)
    return {"supplies": {label: supply for part in parts for label, supply in _labelled_supply(part, asked).items()}}


def _labelled_supply(part: _Part, asked: Collection[str]) -> Mapping[str, JsonObject]:
    environment, supply = part.environment, _supply(part, asked)
    if not supply or not isinstance(environment, LabelledEnvironment):
        return {}
    own = {"fresh": _fresh(part.drawn, part.seen), "a_night": part.quota, "name": environment.own_name}
    return {environment.name: supply | own}


def _supply(part: _Part, asked: Collection[str]) -> JsonObject:
    """Return what is known of one environment's identities, of which `asked` are drawn.

    Those that were seen may be of another supply of the same name, as of another file of prompts. Where the pool is the whole
    supply they are told apart; else all count, and enough are left all the same.
    """
    available = part.supply.get("available")
    if available is None:
        return dict(part.supply)
    left = _fresh(part.pool, {*part.seen, *asked})
    if len({item.identity for item in part.pool}) < available:
        left = available - len(part.seen) - _fresh(part.drawn, part.seen)
    return {"available": available, "left": left, "known": len(part.seen)}


def _fresh(items: Sequence[TaskItem], seen: Collection[str]) -> int:
    return len({item.identity for item in items}.difference(seen))


def supply_of(pool: Sequence[TaskItem], drawn: Sequence[TaskItem], seen: Collection[str]) -> dict[str, int]:
    """Return available, left and known, as `draw_heldout` does, of a pool that is the whole supply."""
    available = {item.identity for item in pool}
    return {"available": len(available), "left": _fresh(pool, {*seen, *(item.identity for item in drawn)}), "known": len(seen)}


def draw(pool: Sequence[TaskItem], count: int, seen: Mapping[str, int]) -> list[TaskItem]:
    """Draw `count` items of the pool, in its order, with as many from each slice as its first `count` items have.

    Within a slice, one item of each identity comes before a second item of any; then identities with fewer looks come first,
    and then the order of the pool decides.
    """
    repeats: Counter[str] = Counter()
    ranked = []
    for position, item in enumerate(pool):
        ranked.append((repeats[item.identity], seen.get(item.identity, 0), position))
        repeats[item.identity] += 1
    wanted = Counter(item.slice for item in pool[:count])
    drawn = []
    for *_, position in sorted(ranked):
        if wanted[pool[position].slice] > 0:
            wanted[pool[position].slice] -= 1
            drawn.append(position)
    return [pool[position] for position in sorted(drawn)]


def _pool(
    environment: World, wanted: int, seed: int, frozen: Collection[str], seen: int
) -> tuple[list[TaskItem], dict[str, int | None]]:
    """Return held-out items outside the benchmark, enough for each slice to fill up with unseen ones if they exist, and the
    number of available identities as `available`."""
    distinct = distinct_items(environment, "heldout")
    fewest = wanted + len(frozen)
    enough = fewest + seen + wanted
    count = enough if distinct is None else max(fewest, min(distinct, enough))
    pool = [item for item in environment.items("heldout", count, seed) if item.identity not in frozen]
    if distinct == 0:
        return pool, {}
    return pool, {"available": None if distinct is None else distinct - len(frozen)}


def _together(store: Store, parts: Sequence[DatasetRef]) -> DatasetRef:
    files = [file for part in parts for file in dataset_files(store, part)]
    return publish_files(store, "task_items", files, parents=[part.digest for part in parts])


def _identities(store: Store, items: DatasetRef) -> set[str]:
    return set(read_dataset(store, items, ["identity"])["identity"].to_pylist())
