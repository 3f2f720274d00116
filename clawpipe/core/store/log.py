"""An append-only log in one file of JSON Lines, with one durable line for each entry."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from clawpipe.core.store.files import fsync
from clawpipe.errors import DataError

Entry = TypeVar("Entry", bound=BaseModel)


class AppendLog(Generic[Entry]):
    """Entries of one kind in one file. The caller must hold a lock to append, but not to read."""

    def __init__(self, path: Path, kind: type[Entry]) -> None:
        self._path, self._kind = path, kind

    def read(self) -> list[Entry]:
        """Return all entries, oldest first; the unfinished line of a killed writer is skipped.

        Raises:
            DataError: a finished line is damaged.
        """
        lines = self._whole().splitlines()
        return [self._parse(number, line) for number, line in enumerate(lines, start=1)]

    def append(self, entry: Entry) -> None:
        """Add one line, durably."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = len(self._whole())
        with self._path.open("ab") as file:
            file.truncate(whole)
            file.write(entry.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fsync(self._path.parent)

    def _whole(self) -> bytes:
        data = self._path.read_bytes() if self._path.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def _parse(self, number: int, line: bytes) -> Entry:
        try:
            return self._kind.model_validate_json(line)
        except ValidationError as error:
            raise DataError(f"line {number} is damaged: {error.errors()[0]['msg']}", str(self._path)) from None
