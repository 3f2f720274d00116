"""Settings of where policies are trained."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.block import Extension, plain_url

LOCAL = "local"
SERVICES = ("tinker", "fireworks")
_KEYS = "TINKER_API_KEY or FIREWORKS_API_KEY"  # environment variables with the services' keys


class BackendSpec(Extension):
    """What trains the policies: this machine, a service, or code of the user's."""

    name: str = Field(
        default=LOCAL,
        description="local (this machine), tinker (a service that speaks Tinker's API), fireworks, or path/to/file.py:NAME",
    )
    options: Options = Field(default_factory=dict, description="further arguments, by name, of what the name stands for")
    url: str | None = Field(default=None, description="URL of the service; null: the one that its library knows")
    model: str | None = Field(default=None, description="name of the base model at the service; tinker and fireworks need one")

    def result_fields(self) -> frozenset[str]:
        """Return the fields that can change a result: which model is trained can, the place of the service cannot."""
        return super().result_fields() - {"url"} - (set() if self.model else {"model"})

    @property
    def is_local(self) -> bool:
        return self.name == LOCAL

    @field_validator("url")
    @classmethod
    def _is_plain(cls, value: str | None) -> str | None:
        return value and plain_url(value, _KEYS)

    @model_validator(mode="after")
    def _is_where_it_can_be(self) -> BackendSpec:
        if self.is_local and (self.url or self.model):
            raise ValueError("`local` trains on this machine: `url` and `model` belong to a service")
        if self.name in SERVICES and not self.model:
            raise ValueError(f"`{self.name}` needs the name of the base model at the service: set `model`")
        return self
