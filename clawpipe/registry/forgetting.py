"""The registry's part in forgetting: which versions there are, and a mark on those that learned what is forgotten."""

from __future__ import annotations

from collections.abc import Iterator

from mlflow.entities.model_registry import ModelVersion

from clawpipe.errors import DataError
from clawpipe.registry.client import changes, connect
from clawpipe.registry.tracking import Tracking
from clawpipe.registry.versions import ModelVersionInfo, resolve

FORGOTTEN = "clawpipe.forgotten"
_LESSON = "clawpipe.dataset.round-"
_DATASET = "clawpipe.dataset."


def registered_versions(tracking: Tracking) -> Iterator[tuple[ModelVersionInfo, dict[str, str]]]:
    """Every version of every model that clawpipe registered, and the digests of its datasets by role; none without a registry.

    Raises:
        BusyError: the MLflow server does not answer.
    """
    if not tracking.exists:
        return
    for found in _pages(tracking):
        try:
            info = resolve(tracking, f"models:/{found.name}/{found.version}")  # a search tells no aliases
        except DataError:  # somebody else's
            continue
        tags = found.tags.items()
        yield info, {name.removeprefix(_DATASET): value for name, value in tags if name.startswith(_DATASET)}


def lessons_of(datasets: dict[str, str]) -> set[str]:
    """Digests of the datasets that a version was trained on."""
    return {digest for role, digest in datasets.items() if f"{_DATASET}{role}".startswith(_LESSON)}


def mark_forgotten(tracking: Tracking, name: str, version: str, rows: int, date: str) -> None:
    """Write on a version how many rows it was taught that have been forgotten, and when. Nothing says which."""
    with changes(tracking) as client:
        client.set_model_version_tag(name, version, FORGOTTEN, f"{rows} rows, {date}")


def _pages(tracking: Tracking) -> Iterator[ModelVersion]:
    client, token = connect(tracking), None
    while True:
        page = client.search_model_versions(page_token=token)
        yield from page
        token = page.token
        if not token:
            return
