"""Demonstrations of the items that no rollout of a round solved, as trajectories of text.

They are rendered, verified and curated as other rows are, and imitated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.demonstration import play_solution, solution_of
from clawpipe.play.environments.ending import Ending
from clawpipe.play.environments.item_rows import ItemRows
from clawpipe.play.environments.several import OpenEnvironments
from clawpipe.play.rollouts.outcomes import unsolved
from clawpipe.play.workers.episodes import TEXT

_FORMAT = "demonstration"  # of a row's origin, by which curation knows it


def demonstrate(
    store: Store,
    trajectories: Sequence[DatasetRef],
    scores: Sequence[DatasetRef],
    items: DatasetRef,
    environments: OpenEnvironments,
) -> StepResult:
    """Play the environment's demonstration of each train item of which every verified rollout failed.

    Returns:
        output: `trajectories` of text, an item each, in the order of the first rollouts' ids; each is in the group of that rollout.
        rows_in counts the items, filtered those without a demonstration.
    """
    known = ItemRows(store, items)
    found = ((known.get(row["item_id"]), row) for row in unsolved(store, trajectories, scores))
    asked = [(TaskItem.from_row(item), row) for item, row in found if item and item["split"] == "train"]
    filtered: Counter[str] = Counter()
    rows = list(_demonstrated(environments, asked, filtered))
    parents = [ref.digest for ref in (*trajectories, *scores, items)]
    output = publish_dataset(store, "trajectories", [pa.Table.from_pylist(rows, schema_of("trajectories"))], parents=parents)
    return StepResult(output=output, rows_in=len(asked), rows_out=len(rows), filtered=dict(filtered))


def _demonstrated(environments: OpenEnvironments, asked: Iterable[tuple[TaskItem, Row]], filtered: Counter[str]) -> Iterator[Row]:
    for item, rollout in asked:
        environment = environments.of(item.environment)
        try:
            says = solution_of(environment, item)
        except Exception:  # of a user's code
            filtered["hindsight raised"] += 1
            continue
        if says:
            yield _row(item, rollout, *play_solution(environment, item, says))
        else:
            filtered["no demonstration"] += 1


def _row(item: TaskItem, rollout: Row, messages: Sequence[Message], ending: Ending) -> Row:
    said = [message.as_dict() for message in messages]
    own: dict[str, Any] = {name: rollout[name] for name in ("group_id", "policy_version", "rollout_index", "temperature")}
    return {
        **{"trajectory_id": sha256_json([_FORMAT, rollout["group_id"], said])[:24], "item_id": item.item_id, **own},
        **{"environment": item.environment, "split": item.split, "source": "rollout", "messages": said},
        **{"seed": 0, "finish_reason": "stop", **TEXT, "logprobs_kind": None, **ending.as_row()},
        "origin": {"format": _FORMAT, "file": item.environment, "line": item.ordinal + 1},
    }
