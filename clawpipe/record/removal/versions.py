"""Remove the files of registered versions that nobody can come back to, and the checkpoints of nights that left no such version.

The versions themselves stay in the registry, with the tags that say what taught them: tracing and forgetting need no more.
"""

from __future__ import annotations

import datetime
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from clawpipe.core.store.home import Home
from clawpipe.record.registry.client import connect, unless_absent
from clawpipe.record.registry.forgetting import registered_versions
from clawpipe.record.registry.promotions import history, rollback_targets
from clawpipe.record.registry.runs import CHECKPOINTS
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import CHAMPION, FILES_REMOVED, ModelVersionInfo


@dataclass(frozen=True)
class Superseded:
    """What `--keep-versions` takes.

    Attributes:
        kept: versions whose files stay.
        taken: the other versions that nights of this home registered.
        runs: MLflow runs of this home's nights whose checkpoints go.
    """

    kept: list[ModelVersionInfo]
    taken: list[ModelVersionInfo]
    runs: list[Run]


def superseded(home: Home, tracking: Tracking, keep: int, nights: Collection[str]) -> Superseded:
    """Choose the versions and runs whose files may go.

    Of each model these stay: the latest `keep` versions, versions with an alias, such as the champion, every version that a
    rollback can reach, and versions of nights of other homes, whose rollbacks are not known here.

    Args:
        home: the home with the log of promotions.
        tracking: its registry.
        keep: number of latest versions of each model, and of latest MLflow runs.
        nights: the nights of this home.

    Raises:
        BusyError: the MLflow server does not answer.
        DataError: the log of promotions is damaged.
    """
    models = defaultdict[str, list[ModelVersionInfo]](list)
    for info, _ in registered_versions(tracking):
        models[info.name].append(info)
    kept, taken = list[ModelVersionInfo](), list[ModelVersionInfo]()
    for name, versions in models.items():
        stay = _wanted(Tracking.of(home, name), versions, keep)
        for info in versions:
            (kept if info.version in stay or info.night not in nights else taken).append(info)
    runs = _runs(connect(tracking), {info.run_id for info in kept}, keep, nights)
    return Superseded(kept, taken, runs)


def _wanted(tracking: Tracking, versions: Sequence[ModelVersionInfo], keep: int) -> set[str]:
    numbers = sorted((info.version for info in versions), key=int, reverse=True)
    champion = next((info.version for info in versions if CHAMPION in info.aliases), None)
    named = {info.version for info in versions if info.aliases}
    return {*numbers[:keep], *named, *rollback_targets(history(tracking), champion)}


def _runs(client: MlflowClient, kept: Collection[str], keep: int, nights: Collection[str]) -> list[Run]:
    """Return the ended runs of these nights that belong to no kept version and are not among the latest of their experiment."""
    found = list[Run]()
    for experiment in client.search_experiments():
        runs = _of_nights(client, experiment.experiment_id, nights)
        found += [run for run in runs[keep:] if run.info.run_id not in kept and run.info.status != "RUNNING"]
    return found


def _of_nights(client: MlflowClient, experiment: str, nights: Collection[str]) -> list[Run]:
    """Return the runs of an experiment that nights of this home made, the latest first."""
    found, token = list[Run](), None
    while True:
        page = client.search_runs([experiment], order_by=["attributes.start_time DESC"], page_token=token)
        found += [run for run in page if run.data.tags.get("clawpipe.night") in nights]
        token = page.token
        if not token:
            return found


def files_of(tracking: Tracking, found: Superseded) -> Iterator[tuple[str, str, int]]:
    """Yield what holds files to be removed, `models:/NAME/VERSION` or `runs:/ID`, its night, and the bytes of the files."""
    for uri, night, repository, path in _places(connect(tracking), found):
        if size := _bytes(repository, path):
            yield uri, night, size


def remove_files(client: MlflowClient, tracking: Tracking, found: Superseded) -> None:
    """Remove the files. The caller has held the registry since before they were chosen, or one of the versions might be promoted
    meanwhile. Versions are marked first. After a kill, the next call goes on.
    """
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for info in found.taken:
        if not info.files_removed:
            client.set_model_version_tag(info.name, info.version, FILES_REMOVED, today)
    for _, _, repository, path in _places(client, found):
        if repository.list_artifacts(path):
            repository.delete_artifacts(path)
    for package in {info.package for info in found.taken} - {info.package for info in found.kept}:
        shutil.rmtree(tracking.packages / package, ignore_errors=True)


def _places(client: MlflowClient, found: Superseded) -> Iterator[tuple[str, str, ArtifactRepository, str | None]]:
    """Yield what holds the files, its night, the repository, and the path in it."""
    kept = {info.model_id for info in found.kept}
    for info in found.taken:
        model = unless_absent(_logged_model(client, info.model_id)) if info.model_id not in kept else None
        if model is not None:
            yield info.uri, info.night, get_artifact_repository(model.artifact_location), None
    for run in found.runs:
        uri = f"runs:/{run.info.run_id}"
        yield uri, run.data.tags["clawpipe.night"], get_artifact_repository(str(run.info.artifact_uri)), CHECKPOINTS


def _logged_model(client: MlflowClient, model_id: str) -> Callable[[], Any]:
    return lambda: client.get_logged_model(model_id)


def _bytes(repository: ArtifactRepository, path: str | None) -> int:
    entries = repository.list_artifacts(path)
    return sum(_bytes(repository, entry.path) if entry.is_dir else entry.file_size or 0 for entry in entries)
