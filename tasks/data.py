"""validate, score, curate: from raw trajectories to what is trained on."""

from __future__ import annotations

from clawpipe.config.night import Curation, EnvironmentConfig
from clawpipe.config.similarity import Near
from clawpipe.contracts.validate import validate as validate_dataset
from clawpipe.curation.facts import stored_facts
from clawpipe.curation.runner import curate as curate_datasets
from clawpipe.curation.stored_pairs import join_pairs
from clawpipe.environments.discovery import load_environment
from clawpipe.judging.base import score_dataset
from clawpipe.judging.verifier import VerifierScorer
from clawpipe.similarity.duplicates import near_duplicates, zip_signed
from clawpipe.similarity.heldout import near_heldout
from clawpipe.similarity.signatures import sign as sign_dataset
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from tasks.resources import resources
from tasks.step import step


@step(module="clawpipe.contracts.validate", libraries=("duckdb", "pyarrow"))
def validate(trajectories: DatasetRef) -> StepResult:
    """Rows that keep the contract; the others go to quarantine with their reasons."""
    return validate_dataset(resources().store, trajectories, "trajectories")


@step(module="clawpipe.contracts.validate", libraries=("duckdb", "pyarrow"))
def validate_scores(scores: DatasetRef) -> StepResult:
    """Stored scores that keep the contract."""
    return validate_dataset(resources().store, scores, "scores")


@step(module="clawpipe.training.text_rows", libraries=("pyarrow", "tokenizers", "transformers"))
def render(trajectories: DatasetRef, policy: ModelRef, environment: EnvironmentConfig, source: str | None) -> StepResult:
    """Tokens for stored conversations that exist only as text, to be imitated."""
    from clawpipe.training.text_rows import render_text  # loads torch, which a night without such text does not need

    return render_text(resources().store, trajectories, policy, environment)


@step(module="clawpipe.judging.verifier", libraries=("pyarrow",))
def score(trajectories: DatasetRef, items: DatasetRef, environment: EnvironmentConfig, source: str | None) -> StepResult:
    """Scores of every trajectory by the environment's verifier."""
    verifier = VerifierScorer(load_environment(environment.name, environment.options))
    return score_dataset(resources().store, trajectories, items, [verifier])


@step(module="clawpipe.similarity.signatures", libraries=("pyarrow", "numpy", "rensa"))
def sign(trajectories: DatasetRef) -> StepResult:
    """Signatures of what was said, by which near-duplicates are found; once a dataset, whatever night it is used on."""
    return sign_dataset(resources().store, trajectories)


@step(module="clawpipe.similarity.duplicates", libraries=("duckdb", "pyarrow", "numpy"))
def find_duplicates(
    trajectories: list[DatasetRef],
    signatures: list[DatasetRef],
    history: list[DatasetRef],
    history_signatures: list[DatasetRef],
    threshold: float,
) -> StepResult:
    """Trajectories that say nearly the same as an earlier one; datasets the oldest first."""
    new, earlier = zip_signed(trajectories, signatures), zip_signed(history, history_signatures)
    return near_duplicates(resources().store, new, earlier, threshold)


@step(module="clawpipe.similarity.heldout", libraries=("pyarrow", "numpy"))
def find_heldout(trajectories: DatasetRef, items: DatasetRef, config: Near) -> StepResult:
    """Trajectories that quote a held-out question, or in which nearly the same was asked."""
    return near_heldout(resources().store, trajectories, items, config)


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
    near: list[DatasetRef],
) -> StepResult:
    """Samples, or for dpo preference pairs, to train on."""
    store, memory = resources().store, resources().runtime.curation_memory
    told = {"weights": weights, "hint": hint, "versions": versions, "facts": stored_facts(store, near)}
    return curate_datasets(store, trajectories, scores, items, config, method, memory=memory, **told)


@step(module="clawpipe.curation.stored_pairs", libraries=("duckdb", "pyarrow"))
def add_stored_pairs(made: list[DatasetRef], stored: list[DatasetRef], items: DatasetRef) -> StepResult:
    """The night's own preference pairs and the stored ones that it names."""
    return join_pairs(resources().store, made, stored, items)
