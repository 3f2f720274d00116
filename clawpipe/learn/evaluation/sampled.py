"""Read what a night's own rollouts say of the policies that sampled them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, variance
from typing import NamedTuple

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.sampled import is_part, sampled_by_episode
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.learn.evaluation.rounds import START, Asked, Measured, Tried


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
    verdicts = _verdicts(store, scores)
    known = {row["item_id"]: row for row in read_dataset(store, items, ["item_id", "slice", "identity"]).to_pylist()}
    versions = {policy.policy_version for policy in policies.values()}
    rows = [row for ref in trajectories for row in _rollouts(store, ref) if row["policy_version"] in versions]
    verified = [row for row in rows if row["trajectory_id"] in verdicts and row["item_id"] in known]
    tried: defaultdict[str, dict[Asked, Tried]] = defaultdict(dict)
    for row in verified:
        _count(tried[row["policy_version"]], known[row["item_id"]], verdicts[row["trajectory_id"]])
    measured = [Measured(number, ref.policy_version, tried.pop(ref.policy_version, {})) for number, ref in policies.items()]
    return Sampled(measured, len(rows), len(verified))


def lengths(store: Store, trajectories: DatasetRef) -> Length | None:
    """Return how many tokens a rollout samples; None where an engine gave text only, or for fewer than two rollouts."""
    rows = read_dataset(store, trajectories, ["trajectory_id", "loss_mask", "extra"]).to_pylist()
    sampled = sampled_by_episode(row for row in rows if row["loss_mask"]).values()
    if len(sampled) < 2 or not any(sampled):
        return None
    return Length(len(sampled), fmean(sampled), variance(sampled))


def _verdicts(store: Store, scores: Sequence[DatasetRef]) -> dict[str, bool]:
    """Return the verifier's verdict on each trajectory, by id."""
    columns = ["trajectory_id", "turn", "origin", "success"]
    rows = [row for ref in scores for row in read_dataset(store, ref, columns).to_pylist()]
    whole = [row for row in rows if row["turn"] is None and row["origin"] == "verifier"]
    return {row["trajectory_id"]: row["success"] for row in whole if row["success"] is not None}


def _rollouts(store: Store, trajectories: DatasetRef) -> list[Row]:
    rows = read_dataset(store, trajectories, ["trajectory_id", "item_id", "policy_version", "extra"]).to_pylist()
    return [row for row in rows if not is_part(row)]


def _count(tried: dict[Asked, Tried], item: Row, success: bool) -> None:
    asked = Asked(item["identity"] or item["item_id"], item["slice"])
    won, of = tried.get(asked, Tried(0, 0))
    tried[asked] = Tried(won + success, of + 1)


def numbered(start: ModelRef, trained: Mapping[str, ModelRef]) -> dict[int, ModelRef]:
    """Return the policies by the number of their round: the start, and what rounds named like `round-2` trained."""
    return {START: start} | {int(name.rpartition("-")[2]): policy for name, policy in trained.items()}
