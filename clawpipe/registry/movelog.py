"""The append-only log of what was in service when, and why: JSON Lines, one line a move of the champion alias."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawpipe.errors import DataError
from clawpipe.store.artifacts import fsync


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


class MoveLog:
    """The log in one file. Appending needs the registry's lock; reading does not."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Move]:
        """All moves, oldest first; a line that a killed writer left unfinished is none.

        Raises:
            DataError: a finished line is damaged.
        """
        lines = self._whole().splitlines()
        return [self._parse(number, line) for number, line in enumerate(lines, start=1)]

    def append(self, move: Move) -> None:
        """Add one line, durably."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = len(self._whole())
        with self._path.open("ab") as file:
            file.truncate(whole)
            file.write(move.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fsync(self._path.parent)

    def _whole(self) -> bytes:
        data = self._path.read_bytes() if self._path.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def _parse(self, number: int, line: bytes) -> Move:
        try:
            return Move.model_validate_json(line)
        except ValidationError as error:
            raise DataError(f"line {number} is damaged: {error.errors()[0]['msg']}", str(self._path)) from None
