"""Forgetting in the registry: list the versions, and mark those that were trained on forgotten rows."""

from __future__ import annotations

from collections.abc import Iterator

from clawpipe.record.registry.client import changes
from clawpipe.record.registry.listing import datasets_of, known_versions
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import ModelVersionInfo

FORGOTTEN = "clawpipe.forgotten"
_TRAINING = "round-"


def registered_versions(tracking: Tracking) -> Iterator[tuple[ModelVersionInfo, dict[str, str]]]:
    """Yield every version that clawpipe registered, with the digests of its datasets by role; none without a registry.

    Raises:
        BusyError: the MLflow server does not answer.
    """
    for version, info in known_versions(tracking):
        yield info, datasets_of(version)


def training_datasets_of(datasets: dict[str, str]) -> set[str]:
    """Return the digests of the datasets that a version was trained on."""
    return {digest for role, digest in datasets.items() if role.startswith(_TRAINING)}


def mark_forgotten(tracking: Tracking, name: str, version: str, rows: int, date: str) -> None:
    """Tag a version with the number of forgotten rows that it was trained on, and the date, but not with the rows."""
    with changes(tracking) as client:
        client.set_model_version_tag(name, version, FORGOTTEN, f"{rows} rows, {date}")
