"""Build the gate's evidence from the results of the evaluations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config.gate import Measure
from clawpipe.core.config.registry import user_digest
from clawpipe.errors import DataError
from clawpipe.learn.evaluation.verdict.verdict import Evidence, Fidelity, Freshness, ItemOutcome, ModelOutcomes, Tally, Training

_ENOUGH = 8  # held-out items of a user; with fewer, one that is lost would be a regression
_AS_MEASURED: Mapping[str, str] = {}  # items are in the slices that the tables name
_EACH_ITS_OWN: Mapping[str, str] = {}  # every item is its own identity


def build_evidence(
    base: pa.Table,
    champion: pa.Table | None,
    candidate: pa.Table,
    served: str,
    confidence: float = 0.95,
    fidelity: Fidelity | None = None,
    max_divergence: float = 0.0,
    freshness: Freshness | None = None,
    identities: Mapping[str, str] = _EACH_ITS_OWN,
    measure: Measure = "success",
    training: Training | None = None,
    earlier: Sequence[Tally] = (),
    seen: Iterable[str] = (),
    slices: Mapping[str, str] = _AS_MEASURED,
) -> Evidence:
    """Build the evidence from one `eval_results` table per model.

    Args:
        base, champion, candidate: columns policy_version, item_id, slice, success, error; `champion` is None while no model
            is in service.
        served: policy version of the artifact that a promotion would put in service.
        confidence: level of the intervals in the verdict.
        fidelity: divergence of the served artifact from the trained policy; None where they are the same.
        max_divergence: share of what was learnt that serving may change.
        freshness: how often earlier nights have looked at these items.
        identities: item id to identity, as in `task_items`; an item without an entry is its own identity.
        measure: what the tables measure.
        training: what the night's training looked like.
        earlier, seen: see `Evidence`.
        slices: item id to slice, where it is another one than in the tables.

    Raises:
        DataError: a table is empty, mixes policy versions, or holds an item twice.
    """
    return Evidence(
        base=_outcomes(base, "base", identities, measure, slices),
        champion=_outcomes(champion, "champion", identities, measure, slices) if champion is not None else None,
        candidate=_outcomes(candidate, "candidate", identities, measure, slices),
        measure=measure,
        served=served,
        confidence=confidence,
        fidelity=fidelity,
        max_divergence=max_divergence,
        freshness=freshness,
        training=training or Training(),
        earlier=tuple(earlier),
        seen=frozenset(seen),
    )


def user_slices(rows: Iterable[Row]) -> dict[str, str]:
    """Return item id to slice: each user with enough items is one, under a digest of the name, and all others together are another.

    Args:
        rows: columns item_id and user_id; an item of nobody stays in its slice.
    """
    whose = {row["item_id"]: row["user_id"] for row in rows if row["user_id"]}
    counts = Counter(whose.values())
    return {item: f"user {user_digest(user)}" if counts[user] >= _ENOUGH else "other users" for item, user in whose.items()}


def _outcomes(
    table: pa.Table, role: str, identities: Mapping[str, str], measure: Measure, slices: Mapping[str, str]
) -> ModelOutcomes:
    rows = table.select(["policy_version", "item_id", "slice", "success", "value", "error"]).to_pylist()
    where = f"eval_results of the {role}"
    versions = sorted({row["policy_version"] for row in rows})
    if len(versions) != 1:
        raise DataError(f"an evaluation holds one policy version, this one holds {len(versions)}: {versions}", where)
    twice = sorted(item for item, count in Counter(row["item_id"] for row in rows).items() if count > 1)
    if twice:
        raise DataError(f"{len(twice)} items occur more than once, e.g. {twice[0]}", where, "evaluate each item once per model")
    sliced = [row | {"slice": slices.get(row["item_id"], row["slice"])} for row in rows]
    return ModelOutcomes(policy_version=versions[0], items={row["item_id"]: _outcome(row, identities, measure) for row in sliced})


def _outcome(row: JsonObject, identities: Mapping[str, str], measure: Measure) -> ItemOutcome:
    """Return a row's outcome; a row with an error has none, whatever its success says."""
    success = row["success"] if row["error"] is None else None
    value = row["value"] if measure in ("likelihood", "judged") and success is not None else None
    return ItemOutcome(success=success, value=value, slice=row["slice"], identity=identities.get(row["item_id"], ""))
