"""Notes of the artifact made for a key, so that it is not made again, or is known to be wanted. Notes may be lost at any time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.refs import DatasetRef
from clawpipe.core.store.replaced import successor

BY_HAND = "by-hand"  # kind of the notes of what a person's command made, by digest: no night refers to it yet
_NONE: Mapping[str, str] = MappingProxyType({})


class Note(BaseModel):
    """A dataset, with details to keep; its parents name its inputs."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    dataset: DatasetRef
    details: JsonObject = Field(default={}, validation_alias=AliasChoices("details", "facts"))  # `facts` up to 0.2


@dataclass(frozen=True)
class Notes:
    """The notes of one kind: small files in a directory of the store."""

    store: Store
    kind: str

    @property
    def directory(self) -> Path:
        return self.store.root / f".{self.kind}"

    def recall(self, key: str) -> Note | None:
        """Return the note of a key if every byte of its dataset is intact, else None."""
        note = _read(self.directory / f"{key}.json")
        return note if note is not None and self.store.intact(note.dataset) else None

    def keep(self, key: str, note: Note) -> None:
        write_atomic(self.directory / f"{key}.json", note.model_dump_json().encode())

    def __iter__(self) -> Iterator[Note]:
        """Yield all notes; their datasets may be gone."""
        return self.since(0.0)

    def since(self, moment: float) -> Iterator[Note]:
        """Yield the notes that were kept since a moment, in seconds since 1970."""
        for path in sorted(self.directory.glob("*.json")):
            if path.stat().st_mtime >= moment and (note := _read(path)):
                yield note

    def drop_dead(self, taken: Mapping[str, str] = _NONE) -> None:
        """Remove the notes of datasets that are gone, as is their replacement (`taken`: new digest by old)."""
        for path in self.directory.glob("*.json"):
            note = _read(path)
            if note is None or not (self.store.root / note.dataset.name / successor(taken, note.dataset.digest)).exists():
                path.unlink()


def _read(path: Path) -> Note | None:
    """Read a note; None if it is missing or damaged."""
    with suppress(OSError, ValidationError):
        return Note.model_validate_json(path.read_bytes())
    return None
