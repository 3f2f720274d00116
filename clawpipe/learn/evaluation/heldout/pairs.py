"""Draw the held-out preference pairs that a night's verdict rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_batches, publish_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.learn.evaluation.heldout.conversations import drawn_from, drawn_result, item_of, owner_of
from clawpipe.learn.evaluation.heldout.holding import Reviews
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.text import TextPair, renderers, text_pair
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.base import TaskItem


def draw_pairs(
    store: Store,
    pairs: Sequence[DatasetRef],
    policy: ModelRef,
    max_tokens: int,
    count: int,
    seen: Mapping[str, int],
    one_user: bool = False,
    reviews: DatasetRef | None = None,
    approved_only: bool = False,
) -> StepResult:
    """Draw up to `count` held-out preference pairs, from the identities with the fewest looks; see `draw_conversations`.

    Args:
        one_user: see `identity_of`.
        reviews, approved_only: see `Reviews`.
        policy: renders the pairs that are text; in the drawn rows every side has token ids.

    Raises:
        DataError: there is none.
    """
    render, schema = _renderer(store, policy), schema_of("preference_pairs")
    reviewed = Reviews.read(store, reviews, approved_only)
    faults: dict[str, str] = {}
    light: dict[str, TaskItem] = {}  # without what is said, of which there are gigabytes
    for row in _rows(store, pairs):  # of a pair that is there twice, the last one counts
        name = row["pair_id"]
        faults[name] = reviewed.fault(name) or _fault_of_pair(row, render, max_tokens)
        light[name] = item_of(name, row, (), 0, one_user)
    pool = [replace(light[name], ordinal=number) for number, name in enumerate(name for name in faults if not faults[name])]
    why = Counter(filter(None, faults.values()))
    chosen = drawn_from(pool, count, seen, why)
    wanted = {item.item_id for item in chosen}
    rows = {row["pair_id"]: row for row in _rows(store, pairs) if row["pair_id"] in wanted}
    for row in rows.values():
        _fault_of_pair(row, render, max_tokens)  # fills the sides in
    drawn = [_item(rows[item.item_id], item.ordinal, one_user) for item in chosen]
    shown = pa.Table.from_pylist([rows[item.item_id] for item in chosen], schema=schema)
    version, parents = pairs[0].schema_version, [*(ref.digest for ref in pairs), policy.digest]
    kept = publish_dataset(store, "preference_pairs", [shown], schema_version=version, parents=parents)
    owners = {name: owner_of(row) for name, row in rows.items()}
    return drawn_result(store, drawn, owners, kept, pool, seen, why)


def _rows(store: Store, pairs: Sequence[DatasetRef]) -> Iterator[Row]:
    schema = schema_of("preference_pairs")
    for ref in pairs:
        for batch in dataset_batches(store, ref):
            yield from conformed(pa.Table.from_batches([batch]), schema).to_pylist()


def _item(row: Row, ordinal: int, one_user: bool) -> TaskItem:
    return item_of(row["pair_id"], row, [*(row["prompt"] or ()), *(row["chosen"] or ())], ordinal, one_user)


def _renderer(store: Store, policy: ModelRef) -> Callable[[Row], TextPair | str]:
    spec = policy_spec(store, policy)
    renderer_of = renderers(load_tokenizer(Path(spec.base)), spec.tool_call_format, ())
    return lambda row: text_pair(row, renderer_of, ())


def _fault_of_pair(row: Row, render: Callable[[Row], TextPair | str], max_tokens: int) -> str:
    """Return why a pair cannot be scored; "" if it can. The sides of a pair that is text get token ids and masks."""
    if row["tokens"] != "recorded":
        rendered = render(row)
        if isinstance(rendered, str):
            return rendered.replace("_", " ")
        for side, (ids, mask) in (("chosen", rendered.chosen), ("rejected", rendered.rejected)):
            row[f"{side}_token_ids"], row[f"{side}_loss_mask"] = ids, mask
    masks = (row["chosen_loss_mask"], row["rejected_loss_mask"])
    if any(not any(mask) or mask[0] for mask in masks):
        return "no turn to score"
    return "too long" if max(map(len, masks)) > max_tokens else ""
