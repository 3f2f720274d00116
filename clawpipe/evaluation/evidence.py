"""From `eval_results` tables to the gate's evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from clawpipe.errors import DataError
from clawpipe.evaluation.verdict import Evidence, Fidelity, Freshness, ItemOutcome, ModelOutcomes

_EACH_ITS_OWN: Mapping[str, str] = {}


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
) -> Evidence:
    """Evidence from one `eval_results` table a model.

    Args:
        base, champion, candidate: columns policy_version, item_id, slice, success, error; `champion` is None while no model
            is in service.
        served: policy version of the artefact that a promotion would put in service.
        confidence: of the intervals in the verdict.
        fidelity: how far the served artefact is from what was trained; None where they are one.
        max_divergence: share of what was learnt that serving may change.
        freshness: how often earlier nights have looked at these items.
        identities: item id to identity, as in `task_items`; an item that it lacks stands for itself.

    Raises:
        DataError: a table is empty, mixes policy versions, or holds an item twice.
    """
    return Evidence(
        base=_outcomes(base, "base", identities),
        champion=_outcomes(champion, "champion", identities) if champion is not None else None,
        candidate=_outcomes(candidate, "candidate", identities),
        served=served,
        confidence=confidence,
        fidelity=fidelity,
        max_divergence=max_divergence,
        freshness=freshness,
    )


def _outcomes(table: pa.Table, role: str, identities: Mapping[str, str]) -> ModelOutcomes:
    rows = table.select(["policy_version", "item_id", "slice", "success", "error"]).to_pylist()
    where = f"eval_results of the {role}"
    versions = sorted({row["policy_version"] for row in rows})
    if len(versions) != 1:
        raise DataError(f"an evaluation is of one policy version, this one is of {len(versions)}: {versions}", where)
    twice = sorted(item for item, count in Counter(row["item_id"] for row in rows).items() if count > 1)
    if twice:
        raise DataError(f"{len(twice)} items occur more than once, e.g. {twice[0]}", where, "evaluate each item once a model")
    return ModelOutcomes(policy_version=versions[0], items={row["item_id"]: _outcome(row, identities) for row in rows})


def _outcome(row: dict, identities: Mapping[str, str]) -> ItemOutcome:
    """A row with an error counts as errored, whatever it says about success."""
    success = row["success"] if row["error"] is None else None
    return ItemOutcome(success=success, slice=row["slice"], identity=identities.get(row["item_id"], ""))
