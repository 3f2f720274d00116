"""Draw a round's task items by how hard they are: those of a middling pass rate teach most, since their rollouts differ."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from clawpipe.core.basics.json_types import Row
from clawpipe.core.config.generation import Difficulty
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_rows, publish_dataset, read_dataset
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.play.rollouts.levels import Won, level_of, levels_reached, part_of
from clawpipe.play.rollouts.outcomes import outcomes


def draw_items(
    store: Store,
    items: DatasetRef,
    tried: Sequence[tuple[DatasetRef, DatasetRef]],
    config: Difficulty,
    count: int,
    seed: int,
    earlier: Sequence[DatasetRef] = (),
) -> StepResult:
    """Draw `count` train items; see `drawn`. Equal arguments draw equal items.

    Args:
        tried: rollouts and their scores, round by round, the newest first.
        earlier: items that earlier nights drew, whose slices say the levels of their rollouts.

    Returns:
        output: `task_items`, numbered anew from 0. details: how many of them were hard (below `low`), middling, easy (above `high`)
        and unseen; of slices with levels, the level of each.
    """
    whole = read_dataset(store, items)
    whole = whole.filter(pc.field("split") == "train")
    every = [row | {"place": place} for place, row in enumerate(whole.select(["item_id", "slice", "ordinal"]).to_pylist())]
    rounds = [_outcomes(store, *one) for one in tried]
    rates = pass_rates(rounds)
    by_slice = _by_slice(rounds, _slices(store, [items, *earlier]) if config.levels else {})
    reached = levels_reached(every, by_slice, config)
    rows = [row for row in every if reached.get(part_of(row["slice"])) in (None, level_of(row["slice"]))]
    chosen = drawn(rows, rates, config, count, seed)
    table = conformed(whole.take(pa.array([row["place"] for row in chosen], pa.int64())), schema_of("task_items"))
    place = table.schema.get_field_index("ordinal")
    table = table.set_column(place, table.schema.field(place), pa.array(range(len(chosen)), table.schema.field(place).type))
    parents = [items.digest, *(ref.digest for ref in earlier), *(ref.digest for pair in tried for ref in pair)]
    kinds = Counter(kind_of(rates.get(row["item_id"]), config) for row in chosen)
    output = publish_dataset(store, "task_items", [table], parents=parents)
    details = {"drawn": dict(sorted(kinds.items()))} | ({"levels": reached} if reached else {})
    return StepResult(output=output, rows_in=len(every), rows_out=len(chosen), details=details)


def _outcomes(store: Store, trajectories: DatasetRef, scores: DatasetRef) -> dict[str, Won]:
    """Return how many of the rollouts of each item succeeded, of those with a verifier's verdict."""
    found: dict[str, Won] = {}
    for one in outcomes(store, [trajectories], [scores]):
        if one.verified:
            found[one.item_id] = found.get(one.item_id, Won(0, 0)).plus(one.won, one.verified)
    return found


def _slices(store: Store, datasets: Sequence[DatasetRef]) -> dict[str, str]:
    """Return the slice of each item."""
    rows = (row for dataset in datasets for row in dataset_rows(store, dataset, ["item_id", "slice"]))
    return {row["item_id"]: row["slice"] for row in rows}


def _by_slice(rounds: Sequence[Mapping[str, Won]], slices: Mapping[str, str]) -> list[dict[str, Won]]:
    """Return for each round how many of the rollouts of each slice succeeded."""
    found = list[dict[str, Won]]()
    for one in rounds:
        found.append({})
        for item, won in one.items():
            if (name := slices.get(item)) is not None:
                found[-1][name] = found[-1].get(name, Won(0, 0)).plus(*won)
    return found


def pass_rates(rounds: Sequence[Mapping[str, Won]]) -> dict[str, float]:
    """Return the pass rate of each item in the first of the rounds that tried it.

    Args:
        rounds: what was won of each item, the newest round first, since older policies could do less.
    """
    rates: dict[str, float] = {}
    for one in rounds:
        rates = {item: won.rate for item, won in one.items()} | rates
    return rates


def kind_of(rate: float | None, config: Difficulty) -> str:
    """Return "unseen", "hard", "middling" or "easy"."""
    if rate is None:
        return "unseen"
    return "hard" if rate < config.low else "easy" if rate > config.high else "middling"


def drawn(rows: Sequence[Row], rates: Mapping[str, float], config: Difficulty, count: int, seed: int) -> list[Row]:
    """Return `count` of the items, all of them different as long as there are enough.

    Each slice keeps its share of the items: otherwise one that is hard throughout would never be drawn. Within a slice the share
    `config.unseen` of items that no round has tried come first, then those of a middling pass rate, the other unseen ones, and last
    hard and easy ones, those nearest to the band first; among equals by lot.
    """
    by_slice: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["ordinal"]):
        by_slice.setdefault(row["slice"], []).append(row)
    shares = _shares({name: len(members) for name, members in by_slice.items()}, count)
    lot = random.Random(seed)
    chosen = [row for name in sorted(by_slice) for row in _of_slice(by_slice[name], rates, config, shares[name], lot)]
    lot.shuffle(chosen)
    return chosen


def _of_slice(rows: Sequence[Row], rates: Mapping[str, float], config: Difficulty, count: int, lot: random.Random) -> list[Row]:
    shuffled = lot.sample(rows, len(rows))
    fresh = [row for row in shuffled if row["item_id"] not in rates][: round(count * config.unseen)]
    ahead = {row["item_id"] for row in fresh}
    rest = [row for row in shuffled if row["item_id"] not in ahead]
    order = [*fresh, *sorted(rest, key=lambda row: _distance(rates.get(row["item_id"]), config))]
    return [order[place % len(order)] for place in range(count)]


def _distance(rate: float | None, config: Difficulty) -> float:
    """Return 0 for a middling item, a little more for an unseen one, and for others how far they are from the band, above that."""
    if rate is None:
        return 1e-9
    return max(config.low - rate, rate - config.high, 0.0)


def _shares(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """Divide `count` in proportion to the sizes; what is left over goes to the largest remainders, the first of equals by name."""
    total = sum(sizes.values())
    shares = {name: count * size // total for name, size in sizes.items()}
    remainders = sorted(sizes, key=lambda name: (-(count * sizes[name] % total), name))
    return shares | {name: shares[name] + 1 for name in remainders[: count - sum(shares.values())]}
