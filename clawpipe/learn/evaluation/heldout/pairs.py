"""Draw the held-out preference pairs that a night's verdict rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.learn.evaluation.heldout.conversations import drawn_from, drawn_result, item_of, owner_of
from clawpipe.learn.evaluation.heldout.holding import Reviews
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.text import TextPair, renderers, text_pair
from clawpipe.model.policy.vocabulary import load_tokenizer


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
    table = pa.concat_tables([conformed(read_dataset(store, ref), schema_of("preference_pairs")) for ref in pairs])
    render = _renderer(store, policy)
    rows = {row["pair_id"]: row for row in table.to_pylist()}
    reviewed = Reviews.read(store, reviews, approved_only)
    faults = {
        name: reviewed.fault(name) or _fault_of_pair(row, render, max_tokens)  # fills the sides in, too
        for name, row in rows.items()
    }
    good = [row for name, row in rows.items() if not faults[name]]
    pool = [
        item_of(row["pair_id"], row, [*(row["prompt"] or ()), *(row["chosen"] or ())], number, one_user)
        for number, row in enumerate(good)
    ]
    why = Counter(filter(None, faults.values()))
    drawn = drawn_from(pool, count, seen, why)
    shown = pa.Table.from_pylist([rows[item.item_id] for item in drawn], schema=table.schema)
    version, parents = pairs[0].schema_version, [*(ref.digest for ref in pairs), policy.digest]
    kept = publish_dataset(store, "preference_pairs", [shown], schema_version=version, parents=parents)
    owners = {row["pair_id"]: owner_of(row) for row in good}
    return drawn_result(store, drawn, owners, kept, pool, seen, why)


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
