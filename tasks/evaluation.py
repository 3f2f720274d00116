"""evaluate and gate: what the candidate is worth, and what follows from it."""

from __future__ import annotations

from typing import Any

from clawpipe.config.night import EnvironmentConfig, Evaluation, Gate, Rollouts
from clawpipe.evaluation.evidence import build_evidence
from clawpipe.evaluation.gate import decide
from clawpipe.evaluation.heldout import evaluate as evaluate_policy
from clawpipe.evaluation.verdict import Fidelity
from clawpipe.store.datasets import read_dataset
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from tasks.resources import resources
from tasks.step import step


@step(module=("clawpipe.evaluation.heldout", "clawpipe.rollouts.worker"), libraries=("torch", "transformers", "peft", "pyarrow"))
def evaluate(
    items: DatasetRef,
    policy: ModelRef,
    environment: EnvironmentConfig,
    source: str | None,
    rollouts: Rollouts,
    config: Evaluation,
    seed: int,
) -> StepResult:
    """A policy on the held-out items, one result an item."""
    night = resources()
    return evaluate_policy(night.store, night.pool, night.home.work, items, policy, environment, rollouts, config, seed)


@step(module="clawpipe.evaluation.gate")
def gate(
    policies: dict[str, ModelRef],
    results: dict[str, DatasetRef],
    config: Gate,
    confidence: float,
    fidelity: dict[str, Any] | None = None,
    max_divergence: float = 0.0,
) -> StepResult:
    """The verdict on the candidate."""
    store = resources().store
    tables = {role: read_dataset(store, dataset) for role, dataset in results.items()}
    served = policies["candidate"].policy_version
    measured = Fidelity.model_validate(fidelity) if fidelity else None
    evidence = build_evidence(
        tables["base"], tables.get("champion"), tables["candidate"], served, confidence, measured, max_divergence
    )
    verdict = decide(evidence, config)
    items = len(evidence.candidate.items)
    return StepResult(rows_in=items, rows_out=items, details=verdict.model_dump(mode="json"))
