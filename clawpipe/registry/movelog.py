"""The append-only log of what was in service when, and why: JSON Lines, one line a move of the champion alias."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.store.log import AppendLog


class Move(BaseModel):
    """One move of the alias."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(description="unique; a night has one promotion, so its id follows from the night")
    time: str = Field(description="ISO 8601, UTC")
    model: str
    action: Literal["promote", "rollback"]
    from_version: str | None = Field(description="what was in service")
    to_version: str = Field(description="what is in service since")
    who: str = Field(description="a night or a user")
    reason: str
    evidence: str = Field(description="digest of the verdict; empty where there was none")
    forced: bool = Field(description="a person overruled the gate")


def move_log(path: Path) -> AppendLog[Move]:
    """The log in one file. Appending needs the registry's lock."""
    return AppendLog(path, Move)
