"""Forgetting in the registry: list the versions, and mark those that were trained on forgotten rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion

from clawpipe.errors import DataError
from clawpipe.registry.client import changes, connect
from clawpipe.registry.tracking import Tracking
from clawpipe.registry.versions import ModelVersionInfo, version_info

FORGOTTEN = "clawpipe.forgotten"
_TRAINING = "clawpipe.dataset.round-"
_DATASET = "clawpipe.dataset."


def registered_versions(tracking: Tracking) -> Iterator[tuple[ModelVersionInfo, dict[str, str]]]:
    """Yield every version that clawpipe registered, with the digests of its datasets by role; none without a registry.

    Raises:
        BusyError: the MLflow server does not answer.
    """
    if not tracking.exists:
        return
    client = connect(tracking)
    aliases = _aliases(client)
    for found in _pages(client):
        try:
            info = version_info(found, aliases[found.name, str(found.version)])
        except DataError:  # registered by another tool
            continue
        tags = found.tags.items()
        yield info, {name.removeprefix(_DATASET): value for name, value in tags if name.startswith(_DATASET)}


def training_datasets_of(datasets: dict[str, str]) -> set[str]:
    """Return the digests of the datasets that a version was trained on."""
    return {digest for role, digest in datasets.items() if f"{_DATASET}{role}".startswith(_TRAINING)}


def mark_forgotten(tracking: Tracking, name: str, version: str, rows: int, date: str) -> None:
    """Tag a version with the number of forgotten rows that it was trained on, and the date, but not with the rows."""
    with changes(tracking) as client:
        client.set_model_version_tag(name, version, FORGOTTEN, f"{rows} rows, {date}")


def _aliases(client: MlflowClient) -> Mapping[tuple[str, str], list[str]]:
    """Return the aliases of all versions by model and version: the search of versions does not name them."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    token = None
    while True:
        page = client.search_registered_models(page_token=token)
        for model in page:
            for alias, version in model.aliases.items():
                found[model.name, str(version)].append(alias)
        token = page.token
        if not token:
            return found


def _pages(client: MlflowClient) -> Iterator[ModelVersion]:
    token = None
    while True:
        page = client.search_model_versions(page_token=token)
        yield from page
        token = page.token
        if not token:
            return
