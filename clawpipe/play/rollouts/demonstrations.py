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
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.demonstration import play_solution, solution_of
from clawpipe.play.environments.ending import Ending
from clawpipe.play.environments.several import OpenEnvironments
from clawpipe.play.workers.episodes import TEXT

_FORMAT = "demonstration"  # of a row's origin, by which curation knows it
_TRIED = ["trajectory_id", "item_id", "group_id", "policy_version", "rollout_index", "temperature", "source"]


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
    known = {row["item_id"]: TaskItem.from_row(row) for row in read_dataset(store, items).to_pylist() if row["split"] == "train"}
    unsolved = {row["item_id"]: row for row in _unsolved(_rows(store, trajectories, _TRIED), _verdicts(store, scores))}
    asked = [(known[name], row) for name, row in sorted(unsolved.items()) if name in known]
    filtered: Counter[str] = Counter()
    rows = list(_demonstrated(environments, asked, filtered))
    parents = [ref.digest for ref in (*trajectories, *scores, items)]
    output = publish_dataset(store, "trajectories", [pa.Table.from_pylist(rows, schema_of("trajectories"))], parents=parents)
    return StepResult(output=output, rows_in=len(asked), rows_out=len(rows), filtered=dict(filtered))


def _rows(store: Store, datasets: Sequence[DatasetRef], columns: list[str]) -> Iterator[Row]:
    for dataset in datasets:
        yield from read_dataset(store, dataset, columns).to_pylist()


def _verdicts(store: Store, scores: Sequence[DatasetRef]) -> dict[str, bool]:
    """Return whether a verifier calls a trajectory a success, by its id."""
    rows = _rows(store, scores, ["trajectory_id", "turn", "origin", "success"])
    verified = [row for row in rows if row["turn"] is None and row["origin"] == "verifier" and row["success"] is not None]
    return {row["trajectory_id"]: row["success"] for row in verified}


def _unsolved(tried: Iterable[Row], verdicts: dict[str, bool]) -> Iterator[Row]:
    """Yield the first rollout, by id, of each item of which no rollout succeeded."""
    by_item: dict[str, list[Row]] = {}
    for row in sorted(tried, key=lambda row: row["trajectory_id"]):
        if row["source"] == "rollout" and row["trajectory_id"] in verdicts:
            by_item.setdefault(row["item_id"], []).append(row)
    for rows in by_item.values():
        if not any(verdicts[row["trajectory_id"]] for row in rows):
            yield rows[0] | {"rollout_index": 1 + max(row["rollout_index"] for row in rows)}


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
