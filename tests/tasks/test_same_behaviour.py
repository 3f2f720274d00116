"""The check of a registered copy against the trained model, on tokens of the evaluation."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import DataError
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import base_ref
from clawpipe.play.workers.request import Job, ScoreRequest
from tasks.registry import _require_same_behaviour

TRAINED = base_ref("random", resolve_base("random").digest, "pythonic", "float32")


class Pool:
    """Scores every token with 0; a copy, which lies elsewhere, with what it is told."""

    def __init__(self, copy: float = 0.0) -> None:
        self.copy, self.asked = copy, list[list[int]]()

    def run(self, job: Job[ScoreRequest, list[float]]) -> list[float]:
        request = job.request
        self.asked.append(request.ids)
        return [self.copy if request.policy.base == "copy" else 0.0 for _ in request.ids[request.start :]]


def evaluated(store: Store, *episodes: list[int]) -> DatasetRef:
    """The trajectories of an evaluation; one without ids is of an agent's program that was never answered."""
    rows = [
        {"trajectory_id": f"t{number}", "tokens": "recorded" if ids else "none", "token_ids": ids, "loss_mask": [False] * len(ids)}
        for number, ids in enumerate(episodes)
    ]
    return publish_dataset(store, "trajectories", [pa.Table.from_pylist(rows, schema=schema_of("trajectories"))])


@pytest.mark.parametrize("episodes", [([1, 2, 3], [4, 5]), ([], [7], [1, 2, 3], [4, 5])])
def test_the_first_episode_with_tokens_is_compared(tmp_path, episodes):
    store, pool = Store(tmp_path), Pool()
    _require_same_behaviour(store, pool, TRAINED, Path("copy"), evaluated(store, *episodes))
    assert pool.asked == [[1, 2, 3]] * 2
    with pytest.raises(DataError, match="behaves differently"):
        _require_same_behaviour(store, Pool(copy=0.5), TRAINED, Path("copy"), evaluated(store, *episodes))


def test_without_tokens_the_digest_has_to_do(tmp_path):
    store, pool = Store(tmp_path), Pool(copy=0.5)
    _require_same_behaviour(store, pool, TRAINED, Path("copy"), evaluated(store, [], [7]))
    assert pool.asked == []
