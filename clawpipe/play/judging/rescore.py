"""Score stored rollouts anew under a changed verifier, and compare its verdicts with those before."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import newest_first, publish_dataset, read_dataset
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.ending import Judges
from clawpipe.play.judging.scoring import reweighed, score_dataset
from clawpipe.play.judging.verifier import VerifierScorer


@dataclass(frozen=True)
class Verdicts:
    """What the verifier says of one trajectory, before and now; None where it says nothing.

    Attributes:
        before, now: value, success and reason.
    """

    trajectory_id: str
    item_id: str
    before: JsonObject | None
    now: JsonObject | None


@dataclass(frozen=True)
class Rescored:
    """The new scores, and what changed.

    Attributes:
        result: output: `scores` of the rollouts, new ones of the verifier, those of other scorers as they were; what cannot be
            scored is filtered by reason.
        verdicts: one for each rollout of the environment, in the dataset's order.
        others: how many rollouts of each other environment the dataset has.
    """

    result: StepResult
    verdicts: list[Verdicts]
    others: dict[str, int]

    @property
    def changed(self) -> list[Verdicts]:
        """The verdicts whose value or success changed, or that are there on one side alone."""
        return [one for one in self.verdicts if _essence(one.before) != _essence(one.now)]


def rescore(store: Store, trajectories: DatasetRef, environment: Judges, log: Path | None = None) -> Rescored:
    """Score rollouts anew, from what is recorded of them, with their stored task items.

    Verdicts before are those of the newest stored scores that have one of the rollout, or of the newest evaluation. Where other
    scorers were part of the reward, they are part of the new one.

    Args:
        log: file for what the environment raises.

    Raises:
        ConfigError: the dataset is not one of trajectories.
        DataError: it holds no rollouts of this environment.
    """
    scorer = VerifierScorer(environment)
    known, others = _rollouts(store, trajectories, environment.name)
    items = _items(store, set(known.values()))
    before = _stored_scores(store, set(known), scorer.name)

    def completed(rows: list[JsonObject]) -> list[JsonObject]:
        return _merged(rows, before.get(rows[0]["trajectory_id"], []), scorer.name)

    result = score_dataset(store, trajectories, items, [scorer], log, completed=completed)
    now = _by_trajectory(read_dataset(store, result.dataset).to_pylist())
    said = _held_out(store, known.keys() - before.keys()) | {name: _verdict(rows, scorer.name) for name, rows in before.items()}
    verdicts = [Verdicts(name, item, said.get(name), _verdict(now.get(name, []), scorer.name)) for name, item in known.items()]
    return Rescored(result, verdicts, others)


def _rollouts(store: Store, trajectories: DatasetRef, environment: str) -> tuple[dict[str, str], dict[str, int]]:
    """Return the item of each rollout of an environment, by trajectory id, in the dataset's order; and how many rollouts of each
    other environment there are."""
    if trajectories.name != "trajectories":
        raise ConfigError(f"this is a dataset of {trajectories.name}", trajectories.digest, "name one of trajectories")
    table = read_dataset(store, trajectories, ["trajectory_id", "item_id", "environment", "source"])
    rollouts = table.filter(pc.field("source") == "rollout")
    own = rollouts.filter(pc.field("environment") == environment)
    counts = Counter(rollouts["environment"].to_pylist())
    if not own.num_rows:
        others = ", ".join(sorted(counts)) or "none"
        raise DataError(f"it holds no rollouts of {environment}", trajectories.digest, f"it has those of: {others}")
    known = dict(zip(own["trajectory_id"].to_pylist(), own["item_id"].to_pylist(), strict=True))
    return known, {name: count for name, count in sorted(counts.items()) if name != environment}


def _items(store: Store, wanted: set[str]) -> DatasetRef:
    """Return a dataset of the stored task items with these ids; of several with one id, the newest stored one."""
    found: dict[str, Row] = {}
    for rows in _stored(store, "task_items", "item_id", wanted, found):
        found |= {row["item_id"]: row for row in rows}
    rows = [found[name] for name in sorted(found)]
    return publish_dataset(store, "task_items", [pa.Table.from_pylist(rows, schema=schema_of("task_items"))])


def _stored_scores(store: Store, wanted: set[str], scorer: str) -> dict[str, list[JsonObject]]:
    """Return the score rows of trajectories, each from the newest stored scores that have a verdict of this scorer on it."""
    found: dict[str, list[JsonObject]] = {}
    for rows in _stored(store, "scores", "trajectory_id", wanted, found):
        found |= {name: mine for name, mine in _by_trajectory(rows).items() if _verdict(mine, scorer)}
    return found


def _held_out(store: Store, wanted: AbstractSet[str]) -> dict[str, JsonObject | None]:
    """Return the newest verdict of an evaluation on each of these trajectories, which names no reason."""
    found: dict[str, JsonObject | None] = {}
    for rows in _stored(store, "eval_results", "trajectory_id", wanted, found):
        judged = [row for row in rows if row["error"] is None]
        found |= {row["trajectory_id"]: {"value": row["value"], "success": row["success"], "reason": ""} for row in judged}
    return found


def _stored(store: Store, name: str, key: str, wanted: AbstractSet[str], found: Mapping[str, Any]) -> Iterator[list[JsonObject]]:
    """Yield the rows of each stored dataset, the newest first, whose key is wanted and not yet found; end when all are."""
    for stored in newest_first(store, name):
        left = pa.array(sorted(wanted - found.keys()), pa.string())
        if not len(left):
            return
        table = conformed(stored, schema_of(name))
        yield table.filter(pc.field(key).isin(left)).to_pylist()


def _by_trajectory(rows: Sequence[JsonObject]) -> dict[str, list[JsonObject]]:
    found: dict[str, list[JsonObject]] = {}
    for row in rows:
        found.setdefault(row["trajectory_id"], []).append(row)
    return found


def _merged(fresh: Sequence[JsonObject], before: Sequence[JsonObject], scorer: str) -> list[JsonObject]:
    """Return the rows of one trajectory: the verifier's are the fresh ones, with the weighted parts of others in its reward."""
    parts = {name: part for row in before for name, part in _parts(row, scorer).items() if name != scorer}
    kept = [row for row in before if row["scorer"] != scorer]
    weight = next((_weight(row) for row in before if (row["scorer"], row["turn"]) == (scorer, None)), 1.0)
    return sorted(
        [*reweighed(fresh, parts, weight), *kept], key=lambda row: (row["scorer"], -1 if row["turn"] is None else row["turn"])
    )


def _parts(row: JsonObject, scorer: str) -> dict[str, float]:
    """Return the parts of the reward that a verifier's score is the sum of, by scorer; none if it is the verifier's value alone."""
    reward = json.loads(row["evidence"]).get("reward") if (row["scorer"], row["turn"]) == (scorer, None) else None
    return reward if isinstance(reward, dict) and scorer in reward else {}


def _weight(row: JsonObject) -> float:
    """Return the weight of the verifier's own value in its score."""
    return float(json.loads(row["evidence"]).get("verifier_weight", 1.0))


def _verdict(rows: Sequence[JsonObject], scorer: str) -> JsonObject | None:
    """Return the verifier's own value, success and reason among the rows of a trajectory."""
    for row in rows:
        if row["scorer"] == scorer and row["turn"] is None:
            value = _parts(row, scorer).get(scorer, row["value"])
            return {"value": value, "success": row["success"], "reason": row["reason"]}
    return None


def _essence(verdict: JsonObject | None) -> tuple[Any, ...] | None:
    return (verdict["value"], verdict["success"]) if verdict else None
