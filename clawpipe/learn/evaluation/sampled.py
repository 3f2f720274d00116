"""Read what a night's own rollouts say of the policies that sampled them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clawpipe.core.contracts.sampled import EPISODE, sampled_by_episode
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_batches, dataset_rows
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.learn.evaluation.rounds import START, Asked, Measured, Tried
from clawpipe.play.rollouts.outcomes import outcomes


class Sampled(NamedTuple):
    """Rollouts of policies and their verifier's verdicts.

    Attributes:
        policies: what each policy tried, in the order in which they were asked for.
        rollouts: number of their rollouts.
        verified: number of those with a verdict.
    """

    policies: list[Measured]
    rollouts: int
    verified: int


class Length(NamedTuple):
    """Sampled tokens of rollouts: their number, mean and sample variance."""

    n: int
    mean: float
    variance: float


def read_sampled(
    store: Store,
    policies: Mapping[int, ModelRef],
    trajectories: Sequence[DatasetRef],
    scores: Sequence[DatasetRef],
    items: DatasetRef,
) -> Sampled:
    """Return what the policies, by round, tried; rollouts of other policies are passed over. Items count by identity and slice.
    An episode is one rollout, however many rows it left.

    A policy that two rounds share, since the later one changed nothing, is measured once, for the earlier round.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    versions = {policy.policy_version for policy in policies.values()}
    found = [one for one in outcomes(store, trajectories, scores) if one.policy_version in versions]
    known = _asked(store, items, {one.item_id for one in found})
    verified = [one for one in found if one.verified and one.item_id in known]
    tried: defaultdict[str, dict[Asked, Tried]] = defaultdict(dict)
    for one in verified:
        won, of = tried[one.policy_version].get(known[one.item_id], Tried(0, 0))
        tried[one.policy_version][known[one.item_id]] = Tried(won + one.won, of + one.verified)
    measured = [Measured(number, ref.policy_version, tried.pop(ref.policy_version, {})) for number, ref in policies.items()]
    return Sampled(measured, sum(one.rollouts for one in found), sum(one.verified for one in verified))


def lengths(store: Store, trajectories: DatasetRef) -> Length | None:
    """Return how many tokens a rollout samples; None where an engine gave text only, or for fewer than two rollouts."""
    lengths = Counter[int]()  # by the number of tokens, of which there are few: as many rollouts have it
    episodes = Counter[str]()
    for batch in dataset_batches(store, trajectories, ["trajectory_id", "loss_mask", "extra"]):
        whole = batch.filter(pc.greater(pc.list_value_length(batch["loss_mask"]), 0))  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
        several = pc.fill_null(pc.match_substring(whole["extra"], f'"{EPISODE}"'), False)  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
        lengths.update(_sampled(whole.filter(pc.invert(several))["loss_mask"]))  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
        episodes.update(sampled_by_episode(whole.filter(several).to_pylist()))
    lengths.update(episodes.values())
    n, total = lengths.total(), sum(length * count for length, count in lengths.items())
    if n < 2 or not total:
        return None
    squares = sum(length**2 * count for length, count in lengths.items())
    return Length(n, total / n, float(Fraction(n * squares - total**2, n * (n - 1))))


def _sampled(masks: pa.ListArray) -> list[int]:
    """Return how many tokens of each row are sampled."""
    marked = np.cumsum(np.concatenate([[0], pc.list_flatten(masks).to_numpy(zero_copy_only=False)]), dtype=np.int64)  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    ends = np.cumsum(pc.list_value_length(masks).to_numpy(zero_copy_only=False), dtype=np.int64)  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    return np.diff(marked[ends], prepend=0).tolist()


def _asked(store: Store, items: DatasetRef, wanted: Collection[str]) -> dict[str, Asked]:
    """Return what counts as one item, by the ids of those that are wanted."""
    rows = dataset_rows(store, items, ["item_id", "slice", "identity"])
    slices = dict[str, str]()
    return {
        row["item_id"]: Asked(row["identity"] or row["item_id"], slices.setdefault(row["slice"], row["slice"]))
        for row in rows
        if row["item_id"] in wanted
    }


def numbered(start: ModelRef, trained: Mapping[str, ModelRef]) -> dict[int, ModelRef]:
    """Return the policies by the number of their round: the start, and what rounds named like `round-2` trained."""
    return {START: start} | {int(name.rpartition("-")[2]): policy for name, policy in trained.items()}
