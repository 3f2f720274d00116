"""Who is told how nights went."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from clawpipe.core.config.block import Block

Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Webhook(Block):
    """An address that gets each event as JSON. An address that holds a secret stands in an environment variable."""

    url: str | None = Field(default=None, description="address without a secret, http or https")
    url_env: Variable | None = Field(default=None, description="environment variable that holds the address")

    @field_validator("url")
    @classmethod
    def _holds_no_secret(cls, url: str | None) -> str | None:
        parts = urlsplit(url or "http://none")
        if parts.username or parts.password or parts.query:
            raise ValueError(
                "an address in the settings holds no secret: put it in an environment variable, and name that in `url_env`"
            )
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError("an address begins with http:// or https://")
        return url

    @model_validator(mode="after")
    def _has_one_address(self) -> Webhook:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("a webhook has either `url` or `url_env`")
        return self


class Notify(Block):
    """Who is told how nights went; it changes no result."""

    webhooks: tuple[Webhook, ...] = Field(
        default=(), description="addresses that get each event as JSON, see docs/notifications.md"
    )
    blocks: tuple[Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+$")], ...] = Field(
        default=(), description="Prefect notification blocks that get each event as text, e.g. slack-webhook/ops"
    )
    apprise_env: tuple[Variable, ...] = Field(
        default=(),
        description="environment variables that each hold an Apprise URL, such as mailto://, which gets each event as text",
    )
    in_a_row: int = Field(default=3, ge=1, description="nights in a row without PROMOTE that are told as an event of their own")

    def result_fields(self) -> frozenset[str]:
        return frozenset()

    @property
    def receivers(self) -> tuple[str, ...]:
        """The receivers as the outbox names them: kind and place, the environment variable in place of what it holds."""
        return (
            *(f"webhook {hook.url or f'${hook.url_env}'}" for hook in self.webhooks),
            *(f"block {name}" for name in self.blocks),
            *(f"apprise ${name}" for name in self.apprise_env),
        )
