"""Read the `preference_pairs` dataset into pairs of rows that can be trained on, and plan their packs.

A pair is two neighbouring rows: 2p is the chosen side of pair p, 2p + 1 its rejected side. A pack holds both in this
order, so the row number of a token gives its pair and its side.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from clawpipe.core.basics.json_types import Row
from clawpipe.errors import DataError
from clawpipe.learn.training.data.packing import Pack, TokenTree, inputs_of, plan_packs
from clawpipe.learn.training.data.rows import StoredRows
from clawpipe.learn.training.data.samples import MISSING, Readable, Sample, fault_of_tokens, read_rows

_References = Mapping[str, "np.ndarray | None"]
_SIDES = ("chosen", "rejected")
_COLUMNS = ["pair_id", "group_id", "prompt_tokens", "temperature", "weight", "tokens"]
_STREAMS = [f"{side}_{stream}" for side in _SIDES for stream in ("token_ids", "loss_mask")]


def load_pairs(
    pairs: Sequence[str],
    scores: Sequence[str] | None,
    temperature: float,
    readable: Readable = Readable(),  # noqa: B008  # a tuple
) -> tuple[StoredRows, dict[str, int]]:
    """Return the rows of recorded pairs in stored order, and how many pairs were filtered for each reason.

    Args:
        pairs: Parquet files in the layout of the `preference_pairs` contract.
        scores: Parquet files of the `token_scores` contract, whose rows `<pair_id>/chosen` and `<pair_id>/rejected` hold the
        reference policy's log-probs of a side's trained tokens; None for a method without a reference.
        temperature: temperature of pairs that recorded none.
        readable: what the model can read.

    Returns:
        2P rows, with the stream `reference` where there is one, and counts by reason.

    Raises:
        DataError: no pair remains, or a file cannot be read.
    """
    reference = None if scores is None else {row["row_id"]: row["reference"] for row in read_rows(scores, ["row_id", "reference"])}
    filtered = Counter[str]()

    def sides() -> Iterator[Sample]:
        for row in read_rows(pairs, [*_COLUMNS, *_STREAMS]):
            result = _pair(row, reference, temperature, readable)
            if isinstance(result, str):
                filtered[result] += 1
            else:
                yield from result

    rows = StoredRows.of(sides())
    if not rows:
        raise DataError("no preference pair remains to train on", ", ".join(pairs), f"filtered: {dict(filtered)}")
    return rows, dict(filtered)


def are_text_only(pairs: Sequence[str]) -> bool:
    """Return whether no pair holds recorded tokens.

    Raises:
        DataError: a file cannot be read.
    """
    return all(row["tokens"] == "none" for row in read_rows(pairs, ["tokens"]))


def plan_pairs(
    rows: Sequence[Sample], pack_tokens: int, steps: int, seed: int, epochs: int = 1, share: bool = True, whole: bool = True
) -> list[list[Pack]]:
    """Plan which rows go into which pack of which optimizer step, like `plan_packs`, but without splitting a pair.

    A pair that is longer than a pack gets a pack alone.
    """
    sharded = plan_packs(rows[0::2], sys.maxsize, steps, seed, epochs, whole=whole)  # one pack of pairs per step
    plan = [_fill_packs(rows, pairs, pack_tokens, share) for (pairs,) in sharded]
    longest = max(len(packs) for packs in plan)
    return [packs + [[] for _ in range(longest - len(packs))] for packs in plan]


def _fill_packs(rows: Sequence[Sample], pairs: Sequence[int], pack_tokens: int, share: bool) -> list[Pack]:
    packs: list[Pack] = []
    tree = TokenTree(share)
    for pair in pairs:
        sides = [2 * pair, 2 * pair + 1]
        _grow(tree, rows, sides)
        if not packs or len(tree.tokens) > pack_tokens:
            packs.append([])
            tree = TokenTree(share)
            _grow(tree, rows, sides)
        packs[-1] += sides
    return packs


def _grow(tree: TokenTree, rows: Sequence[Sample], indices: Sequence[int]) -> None:
    for index in indices:
        tree.add(inputs_of(rows[index]))


def _pair(row: Row, reference: _References | None, temperature: float, readable: Readable) -> tuple[Sample, Sample] | str:
    """Return both sides, or why they cannot be trained on."""
    if row["tokens"] == "none":
        return "text_only_beside_recorded_pairs"
    chosen, rejected = (_side(row, side, reference, temperature, readable) for side in _SIDES)
    if isinstance(chosen, str) or isinstance(rejected, str):
        return chosen if isinstance(chosen, str) else str(rejected)
    prompt = int(row["prompt_tokens"])
    if not np.array_equal(chosen.token_ids[:prompt], rejected.token_ids[:prompt]):
        return "prompts_differ"
    return chosen, rejected


def _side(row: Row, side: str, reference: _References | None, temperature: float, readable: Readable) -> Sample | str:
    ids, mask = row[f"{side}_token_ids"], row[f"{side}_loss_mask"].astype(bool)
    if len(ids) != len(mask):
        return "lengths_differ"
    trained = np.flatnonzero(mask)
    if fault := fault_of_tokens(ids, trained, readable):
        return fault
    known = np.array([]) if reference is None else reference.get(f"{row['pair_id']}/{side}")
    if known is None or (reference is not None and len(known) != len(trained)):
        return MISSING
    if not np.isfinite([row["weight"], row["temperature"], *known]).all():
        return "not_finite"
    return Sample(
        group=str(row["group_id"]),
        token_ids=ids,
        trained=trained,
        temperature=float(row["temperature"] or temperature),
        weight=float(row["weight"]),
        streams={} if reference is None else {"reference": known.astype(np.float32)},
    )
