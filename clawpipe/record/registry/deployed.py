"""Which services serve a version: tags of the version, so that whoever reads the registry sees them, the lineage among them."""

from __future__ import annotations

from datetime import UTC, datetime

from mlflow.entities.model_registry import ModelVersion
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.record.registry.client import changes
from clawpipe.record.registry.tracking import Tracking

_TAG = "clawpipe.deployed."  # and the target; MLflow's pages list it beside what people read


class Deployed(BaseModel):
    """One deployment of a version, of which a target has one at a time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str
    state: str = Field(description="starting, deployed or ended")
    method: str
    gpus: int | None
    where: str = Field(description="URL of the service, and the account there")
    deployment: str = Field(description="its name there; empty where the model's name is all")
    model: str = Field(description="the name by which clients ask for it")
    endpoint: str
    by: str = ""
    at: str = Field(default="", description="of the last change, in UTC")


def deployed_of(version: ModelVersion) -> tuple[Deployed, ...]:
    """Return the deployments that a version's tags name, by target."""
    tags = sorted((name, value) for name, value in version.tags.items() if name.startswith(_TAG))
    return tuple(Deployed.model_validate_json(value) for _, value in tags)


def note_deployed(tracking: Tracking, version: str, record: Deployed, by: str) -> Deployed:
    """Keep a deployment's present state with the version."""
    noted = record.model_copy(update={"by": by, "at": datetime.now(UTC).isoformat(timespec="seconds")})
    with changes(tracking) as client:
        client.set_model_version_tag(tracking.model_name, version, f"{_TAG}{record.target}", noted.model_dump_json())
    return noted
