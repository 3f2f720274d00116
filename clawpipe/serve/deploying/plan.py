"""What a deployment would send, and what is known of its price. Imports no heavy library."""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.record.registry.deployed import Deployed

Target = Literal["tinker", "fireworks"]
Method = Literal["lora", "merged"]


class Wanted(BaseModel):
    """What a user asks for.

    Attributes:
        gpus: of each replica; None: the service's own choice.
        project: account or project to which the service writes the bill.
        base: the base model's name at the service.
        gpu_hour: dollars that one GPU costs in an hour, as the user says.
        url: of the service; None: its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Method = "lora"
    gpus: int | None = Field(default=None, ge=1)
    gpu: str | None = None
    project: str | None = None
    base: str | None = None
    gpu_hour: float | None = Field(default=None, gt=0)
    url: str | None = None


class Call(BaseModel):
    """One request that would be sent, without secrets. `note` says what it is for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    path: str
    note: str
    body: JsonObject = {}


class Plan(BaseModel):
    """What a deployment would do.

    Attributes:
        calls: in their order; those whose result is there already are left out when it runs.
        price: in one sentence, with where the figure comes from; "unknown" where nobody here knows.
        model: the name by which clients ask for it.
        endpoint: URL, in OpenAI's dialect.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Target
    version: str
    policy_version: str
    wanted: Wanted
    where: str
    calls: tuple[Call, ...]
    price: str
    model: str
    endpoint: str
    deployment: str = Field(default="", description="its name at the service; empty where there is none")

    def record(self, state: str) -> Deployed:
        """Return what the registry keeps of it."""
        return Deployed(
            target=self.target,
            state=state,
            method=self.wanted.method,
            gpus=self.wanted.gpus,
            where=self.where,
            deployment=self.deployment,
            model=self.model,
            endpoint=self.endpoint,
        )


class Service(Protocol):
    """A service that serves models. Each member raises ConfigError, NotFoundError, DataError, or BusyError."""

    def plan(self) -> Plan:
        """Return what would be sent; nothing is paid for."""
        ...

    def deploy(self, plan: Plan) -> None:
        """Send it. Whatever is there already is found by its name, and not made, or paid for, twice."""
        ...

    def state(self, record: Deployed) -> str:
        """Return the state of a deployment there, in the service's word; "gone" if there is none."""
        ...

    def end(self, record: Deployed) -> None:
        """End a deployment. One that is gone is no error."""
        ...
