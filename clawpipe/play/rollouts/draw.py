"""Draw a round's task items by how hard they are: those of a middling pass rate teach most, since their rollouts differ."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import pyarrow as pa

from clawpipe.core.basics.json_types import Row
from clawpipe.core.config.generation import Difficulty
from clawpipe.core.contracts.sampled import is_part
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.play.rollouts.levels import level_of, levels_reached, part_of


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
    every = [row for row in read_dataset(store, items).to_pylist() if row["split"] == "train"]
    outcomes = [_outcomes(store, *one) for one in tried]
    rates = pass_rates(outcomes)
    slices = _slices(store, [items, *earlier])
    by_slice = [[(slices[item], success) for item, success in one if item in slices] for one in outcomes]
    reached = levels_reached(every, by_slice, config)
    rows = [row for row in every if reached.get(part_of(row["slice"])) in (None, level_of(row["slice"]))]
    chosen = drawn(rows, rates, config, count, seed)
    table = pa.Table.from_pylist([row | {"ordinal": place} for place, row in enumerate(chosen)], schema_of("task_items"))
    parents = [items.digest, *(ref.digest for ref in earlier), *(ref.digest for pair in tried for ref in pair)]
    kinds = Counter(kind_of(rates.get(row["item_id"]), config) for row in chosen)
    output = publish_dataset(store, "task_items", [table], parents=parents)
    details = {"drawn": dict(sorted(kinds.items()))} | ({"levels": reached} if reached else {})
    return StepResult(output=output, rows_in=len(every), rows_out=len(chosen), details=details)


def _outcomes(store: Store, trajectories: DatasetRef, scores: DatasetRef) -> list[tuple[str, bool]]:
    """Return the item and the verifier's verdict of each rollout that has one."""
    verified = read_dataset(store, scores, ["trajectory_id", "turn", "origin", "success"]).to_pylist()
    success = {row["trajectory_id"]: row["success"] for row in verified if row["turn"] is None and row["origin"] == "verifier"}
    tried = read_dataset(store, trajectories, ["trajectory_id", "item_id", "extra"]).to_pylist()
    known = [(row["item_id"], success.get(row["trajectory_id"])) for row in tried if not is_part(row)]
    return [(item, verdict) for item, verdict in known if verdict is not None]


def _slices(store: Store, datasets: Sequence[DatasetRef]) -> dict[str, str]:
    """Return the slice of each item."""
    rows = (row for dataset in datasets for row in read_dataset(store, dataset, ["item_id", "slice"]).to_pylist())
    return {row["item_id"]: row["slice"] for row in rows}


def pass_rates(rounds: Sequence[Sequence[tuple[str, bool]]]) -> dict[str, float]:
    """Return the pass rate of each item in the first of the rounds that tried it.

    Args:
        rounds: (item, success) of each rollout, the newest round first, since older policies could do less.
    """
    rates: dict[str, float] = {}
    for outcomes in rounds:
        verdicts: defaultdict[str, list[bool]] = defaultdict(list)
        for item, success in outcomes:
            verdicts[item].append(success)
        rates = {item: sum(known) / len(known) for item, known in verdicts.items()} | rates
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
