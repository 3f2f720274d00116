"""validate, score, curate: from raw trajectories to what is trained on."""

from __future__ import annotations

from clawpipe.config.night import Curation, EnvironmentConfig
from clawpipe.contracts.validate import validate as validate_dataset
from clawpipe.curation.runner import curate as curate_datasets
from clawpipe.curation.stored_pairs import join_pairs
from clawpipe.environments.discovery import load_environment
from clawpipe.judging.base import score_dataset
from clawpipe.judging.verifier import VerifierScorer
from clawpipe.store.refs import DatasetRef, StepResult
from tasks.resources import resources
from tasks.step import step


@step(module="clawpipe.contracts.validate", libraries=("duckdb", "pyarrow"))
def validate(trajectories: DatasetRef) -> StepResult:
    """Rows that keep the contract; the others go to quarantine with their reasons."""
    return validate_dataset(resources().store, trajectories, "trajectories")


@step(module="clawpipe.judging.verifier", libraries=("pyarrow",))
def score(trajectories: DatasetRef, items: DatasetRef, environment: EnvironmentConfig, source: str | None) -> StepResult:
    """Scores of every trajectory by the environment's verifier."""
    verifier = VerifierScorer(load_environment(environment.name, environment.options))
    return score_dataset(resources().store, trajectories, items, [verifier])


@step(module="clawpipe.curation.runner", libraries=("duckdb", "pyarrow"))
def curate(
    trajectories: list[DatasetRef],
    scores: list[DatasetRef],
    items: DatasetRef,
    config: Curation,
    method: str,
    weights: tuple[float, float],
    hint: str,
    versions: list[str],
) -> StepResult:
    """Samples, or for dpo preference pairs, to train on."""
    return curate_datasets(
        resources().store, trajectories, scores, items, config, method, weights=weights, hint=hint, versions=versions
    )


@step(module="clawpipe.curation.stored_pairs", libraries=("duckdb", "pyarrow"))
def add_stored_pairs(made: list[DatasetRef], stored: list[DatasetRef], items: DatasetRef) -> StepResult:
    """The night's own preference pairs and the stored ones that it names."""
    return join_pairs(resources().store, made, stored, items)
