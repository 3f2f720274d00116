"""evaluate and gate: what the candidate is worth, and what follows from it."""

from __future__ import annotations

from clawpipe.config.night import EnvironmentConfig, Evaluation, Gate, Rollouts
from clawpipe.evaluation.heldout import evaluate as evaluate_policy
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from tasks.resources import resources
from tasks.step import step


@step(module="clawpipe.evaluation.heldout", libraries=("torch", "transformers", "peft", "pyarrow"))
def evaluate(
    items: DatasetRef,
    policy: ModelRef,
    environment: EnvironmentConfig,
    source: str,
    rollouts: Rollouts,
    config: Evaluation,
    seed: int,
) -> StepResult:
    """A policy on the held-out items, one result an item."""
    night = resources()
    return evaluate_policy(
        night.store, night.pool, night.home.work, items, policy, environment, rollouts, config, seed
    )
