"""List the versions of registered models: what became of each, when and of what it was made."""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.store.model_registry import SEARCH_MODEL_VERSION_MAX_RESULTS_DEFAULT
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.errors import DataError
from clawpipe.model.policy.spec import base_name
from clawpipe.record.registry.client import connect
from clawpipe.record.registry.tags import internal, internals
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import PARENT, ModelVersionInfo, version_info

_DATASET, _VERDICT = "dataset.", "verdict"
_NAME = re.compile(r"[A-Za-z0-9_-]+")


class Listed(BaseModel):
    """A registered version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    version: str
    aliases: tuple[str, ...] = Field(description="e.g. champion")
    verdict: str = Field(description="PROMOTE, HOLD or REJECT; empty if its tag is gone")
    heldout: str = Field(description="the candidate's held-out figure with its interval")
    made: str = Field(description="ISO 8601, UTC")
    night: str
    base: str
    parent: str | None = Field(description="version that its training started from; None: the base")
    datasets: dict[str, str] = Field(description="digests of what it was trained and judged on, by role")


def list_versions(
    tracking: Tracking, model: str | None = None, verdict: str | None = None, limit: int | None = None
) -> list[Listed]:
    """Return the versions that clawpipe registered, the newest first; none without a registry.

    Args:
        model: only those of this model.
        verdict: only those with this verdict.
        limit: most versions to return; None: all.

    Raises:
        BusyError: the MLflow server does not answer.
        DataError: the registry's database is damaged.
    """
    if model is not None and not _NAME.fullmatch(model):
        return []
    wanted = {"name": model, f"tags.`{_VERDICT}`": verdict}
    query = " and ".join(f"{field} = '{value}'" for field, value in wanted.items() if value)
    found = list(islice(known_versions(tracking, query, limit), limit))
    unnamed = any(PARENT not in version.tags and internal("key") not in version.tags for version, _ in found)
    made = {(info.name, info.policy.digest): info.version for _, info in known_versions(tracking)} if unnamed else {}
    return [_listed(version, info, made) for version, info in found]


def known_versions(tracking: Tracking, query: str = "", page: int | None = None) -> Iterator[tuple[ModelVersion, ModelVersionInfo]]:
    """Yield every version that clawpipe registered, the newest first.

    Args:
        query: a filter in MLflow's language.
        page: how many versions to ask for at once; None: as many as MLflow gives.

    Raises:
        BusyError: the MLflow server does not answer.
    """
    if not tracking.exists:
        return
    client = connect(tracking)
    aliases = _aliases(client)
    for found in _pages(client, query, page):
        try:
            yield found, version_info(found, aliases[found.name, str(found.version)])
        except DataError:  # registered by another tool
            continue


def datasets_of(version: ModelVersion) -> dict[str, str]:
    """Return the digests of a version's datasets by role."""
    tags = internals(version.tags).items()
    return {name.removeprefix(_DATASET): digest for name, digest in tags if name.startswith(_DATASET)}


def _listed(version: ModelVersion, info: ModelVersionInfo, made: Mapping[tuple[str, str], str]) -> Listed:
    time = datetime.datetime.fromtimestamp(version.creation_timestamp / 1000, datetime.UTC)
    return Listed(
        model=info.name,
        version=info.version,
        aliases=info.aliases,
        verdict=version.tags.get(_VERDICT, ""),
        heldout=version.tags.get("heldout.candidate", ""),
        made=time.isoformat(timespec="seconds"),
        night=info.night,
        base=base_name(info.policy.base_name),
        parent=version.tags.get(PARENT) or _by_digest(info, info.policy.parents, made),
        datasets=datasets_of(version),
    )


def _by_digest(info: ModelVersionInfo, parents: Iterable[str], made: Mapping[tuple[str, str], str]) -> str | None:
    """Return the parent of a version from before versions named it: the one whose weights its policy names."""
    return next((made[info.name, digest] for digest in parents if (info.name, digest) in made), None)


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


def _pages(client: MlflowClient, query: str, page: int | None) -> Iterator[ModelVersion]:
    size, token = min(page or SEARCH_MODEL_VERSION_MAX_RESULTS_DEFAULT, SEARCH_MODEL_VERSION_MAX_RESULTS_DEFAULT), None
    while True:
        found = client.search_model_versions(query, max_results=size, order_by=["creation_timestamp DESC"], page_token=token)
        yield from found
        token = found.token
        if not token:
            return
