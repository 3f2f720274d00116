"""What the registry is told about a night."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class NightFacts(BaseModel):
    """The night of a candidate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    champion: str | None = Field(description="version that the candidate was compared with")
    model_name: str
    config: dict[str, Any] = Field(description="settings that change results")
