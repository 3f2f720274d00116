"""Steps register, promote, publish_lineage: make the candidate a version and the version the champion; record the lineage."""

from __future__ import annotations

from pathlib import Path
from typing import cast
from urllib.parse import urlsplit
from uuid import UUID

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.context import TaskRunContext
from prefect.settings import PREFECT_HOME, PREFECT_UI_URL

from clawpipe.core.config.night import Played, Runtime
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.errors import DataError
from clawpipe.learn.evaluation.heldout.turns import heldout_tokens
from clawpipe.learn.evaluation.verdict.verdict import Verdict
from clawpipe.model.policy.spec import policy_spec
from clawpipe.play.environments.several import open_environments
from clawpipe.play.workers.pool import WorkerPool, open_workers
from clawpipe.play.workers.request import Job, ScoreRequest
from clawpipe.record.lineage.record import Lineage, build_lineage, write_lineage
from clawpipe.record.nights.conclude import conclude
from clawpipe.record.nights.files import run_dir
from clawpipe.record.nights.status import read_status
from clawpipe.record.registry.publish import NightSummary, is_promoted, is_registered, promote_version, register_candidate
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.reporting.mermaid import literal, markdown
from tasks.step import step


@step(holds=lambda result: is_registered(Home.from_env(), result))
def register(
    summary: NightSummary,
    candidate: ModelRef,
    environment: Played,
    datasets: dict[str, DatasetRef],
    verdict: StepResult,
    runtime: Runtime,
) -> StepResult:
    """Register the candidate as a version of the model, once. `verdict` is the result of the gate step."""
    home = Home.from_env()
    store = open_store(home)
    with open_workers(runtime, home.logs) as pool, open_environments(environment) as environments:
        return register_candidate(
            Tracking.of(home, summary.model_name),
            store,
            summary,
            candidate,
            environments,
            datasets,
            Verdict.model_validate(verdict.details),
            check=lambda copy: _require_same_behaviour(store, pool, candidate, copy, datasets["heldout"]),
        )


def _require_same_behaviour(store: Store, pool: WorkerPool, candidate: ModelRef, copy: Path, heldout: DatasetRef) -> None:
    """Load the downloaded copy and compare its log-probs with the trained model's, on tokens of the evaluation. Where the base's
    weights are elsewhere, or the evaluation recorded no tokens, the copy's digest, which the registration compares, has to do.

    Raises:
        DataError: they differ in any bit.
    """
    if candidate.elsewhere:
        return
    ids = next((row["token_ids"] for row in heldout_tokens(store, heldout) if len(row["token_ids"]) > 1), None)
    if ids is None:
        return
    trained = policy_spec(store, candidate)
    loaded = trained.model_copy(update={"adapter" if candidate.adapter else "base": str(copy)})
    first, second = (pool.run(Job(request=ScoreRequest(policy=spec, ids=ids, start=1))) for spec in (trained, loaded))
    if first != second:
        worst = max(abs(a - b) for a, b in zip(first, second, strict=True))
        raise DataError(
            f"the registered copy behaves differently from the trained model (log-probs differ by {worst:g})", str(copy)
        )


@step(holds=lambda result: is_promoted(Home.from_env(), result))
def promote(summary: NightSummary, version: str, verdict: StepResult) -> StepResult:
    """Make the version the champion. `verdict` is the result of the gate step."""
    return promote_version(
        Tracking.of(Home.from_env(), summary.model_name), summary, version, Verdict.model_validate(verdict.details)
    )


@step(cached=False)
def publish_lineage(summary: NightSummary, outside: list[ModelRef | DatasetRef]) -> StepResult:
    """Publish the model's lineage: a graph and a table in the Prefect UI, and the same as JSON beside the night's record."""
    home = Home.from_env()
    status = conclude(read_status(home, summary.night))
    lineage = build_lineage(status, outside=outside, link=Tracking.of(home, summary.model_name).link)
    path = write_lineage(lineage, run_dir(home, summary.night))
    details = {"file": str(path)}
    if TaskRunContext.get():  # without Prefect there is no page to show it on
        details["page"] = _show(lineage, summary.model_name, home)
    return StepResult(details=details)


def _show(lineage: Lineage, model_name: str, home: Home) -> str:
    """Make the lineage an artifact of this run. Prefect's older pages show a graph as source text, so the description, which every
    page with the artifact shows, links to the page that draws it.

    Returns:
        the page's address; without host and port for the home's own server, whose port may change.
    """
    text = f"Lineage of {literal(lineage.night)}"
    key = f"lineage-{model_name.lower().replace('_', '-')}"
    artifact = cast(UUID, create_markdown_artifact(key=key, markdown=markdown(lineage), description=text))  # a coroutine elsewhere
    pages, page = PREFECT_UI_URL.value() or "", f"/v2/artifacts/artifact/{artifact}"
    linked = f"{text}: [its graph as a picture]({urlsplit(pages).path.rstrip('/')}{page})"
    with get_client(sync_client=True) as client:
        client.update_artifact(artifact, ArtifactUpdate(description=linked))
    return page if PREFECT_HOME.value() == home.prefect else f"{pages.rstrip('/')}{page}"
