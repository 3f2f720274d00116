"""register, promote, publish_lineage: the candidate becomes a version, the version the champion, and all of it a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect.artifacts import create_markdown_artifact

from clawpipe.config.night import EnvironmentConfig
from clawpipe.environments.discovery import load_environment
from clawpipe.errors import DataError
from clawpipe.evaluation.verdict import Verdict
from clawpipe.nights.conclude import conclude
from clawpipe.policy.spec import policy_spec
from clawpipe.registry.publish import NightFacts, is_promoted, is_registered, promote_version, register_candidate
from clawpipe.registry.tracking import Tracking
from clawpipe.reporting.lineage import build_lineage, write_lineage
from clawpipe.reporting.mermaid import markdown
from clawpipe.rollouts.request import Job, ScoreRequest
from clawpipe.store.datasets import read_dataset
from clawpipe.store.home import Home
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from tasks.resources import Resources, resources
from tasks.step import step


@step(module="clawpipe.registry.publish", libraries=("mlflow",), holds=lambda result: is_registered(Home.from_env(), result))
def register(
    facts: NightFacts,
    candidate: ModelRef,
    environment: EnvironmentConfig,
    source: str | None,
    datasets: dict[str, DatasetRef],
    verdict: dict[str, Any],
) -> StepResult:
    """The candidate as a version of the registered model, once."""
    night = resources()
    return register_candidate(
        Tracking.of(night.home, facts.model_name),
        night.store,
        facts,
        candidate,
        load_environment(environment.name, environment.options),
        datasets,
        Verdict.model_validate(verdict),
        check=lambda copy: _same_behaviour(night, candidate, copy, datasets["heldout"]),
    )


def _same_behaviour(night: Resources, candidate: ModelRef, copy: Path, heldout: DatasetRef) -> None:
    """Load the downloaded copy and compare its log-probs with the trained model's, on tokens of the evaluation.

    Raises:
        DataError: they differ in any bit.
    """
    row = read_dataset(night.store, heldout, ["token_ids"]).slice(0, 1).to_pylist()[0]
    trained = policy_spec(night.store, candidate)
    loaded = trained.model_copy(update={"adapter" if candidate.adapter else "base": str(copy)})
    first, second = (
        night.pool.run(Job(request=ScoreRequest(policy=spec, ids=row["token_ids"], start=1))) for spec in (trained, loaded)
    )
    if first != second:
        worst = max(abs(a - b) for a, b in zip(first, second, strict=True))
        raise DataError(
            f"the registered copy behaves differently from the trained model (log-probs differ by {worst:g})", str(copy)
        )


@step(module="clawpipe.registry.publish", holds=lambda result: is_promoted(Home.from_env(), result))
def promote(facts: NightFacts, version: str, verdict: dict[str, Any]) -> StepResult:
    """The version as champion."""
    return promote_version(Tracking.of(resources().home, facts.model_name), facts, version, Verdict.model_validate(verdict))


@step(module="clawpipe.reporting.lineage", cached=False)
def publish_lineage(facts: NightFacts, outside: list[ModelRef | DatasetRef]) -> StepResult:
    """Where the model came from: a graph and a table in the Prefect UI, the same as JSON beside the night's record."""
    night = resources()
    lineage = build_lineage(conclude(night.journal), outside=outside, link=Tracking.of(night.home, facts.model_name).link)
    path = write_lineage(lineage, night.journal.run_dir)
    create_markdown_artifact(
        key=f"lineage-{facts.model_name.lower()}", markdown=markdown(lineage), description=f"Lineage of {facts.night}"
    )
    return StepResult(details={"file": str(path)})
