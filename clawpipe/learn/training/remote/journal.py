"""The journal of a training at a service: what a later process needs to go on from the last optimizer step that was saved.

Where machines share a home, it is an object that the others find, too, see `clawpipe.core.store.machines`: what one has paid for,
the other goes on with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.machines import shared_objects
from clawpipe.errors import BusyError

_SHARED = "trainings"
Metrics = dict[str, float]


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid")

    identity: dict[str, str]
    state: str | None = None
    steps: list[Metrics] = []
    scores: list[list[list[float]]] = []
    samplers: dict[str, str] = {}

    @property
    def paid(self) -> tuple[int, int, int]:
        """How far the training is: steps, what was computed before the first one, and policies kept for sampling."""
        return len(self.steps), len(self.scores), len(self.samplers)


class Journal:
    """What is known of a training, in a file that is replaced as a whole.

    Attributes:
        state: path of the weights and the optimizer at the service after the last step in `steps`; None before the first.
        steps: metrics of the optimizer steps so far.
        samplers: where the service keeps policies for sampling, by name.
    """

    def __init__(self, file: Path, identity: dict[str, str], *, shared: bool) -> None:
        """Read the file, or what another machine has noted since; that of another training, with other settings, rows or code,
        counts as none.

        Args:
            shared: whether the training may go on on another machine of the home: it keeps nothing else on this one.
        """
        self._file = file
        self._objects, self._place = shared_objects() if shared else None, f"{_SHARED}/{sha256_json(identity)}"
        self._entries = max((_parsed(data, identity) for data in self._read()), key=lambda entries: entries.paid)
        self._asked = 0

    @property
    def state(self) -> str | None:
        return self._entries.state

    @property
    def steps(self) -> list[Metrics]:
        return self._entries.steps

    @property
    def samplers(self) -> dict[str, str]:
        return self._entries.samplers

    def add_sampler(self, name: str, path: str) -> None:
        self._entries.samplers[name] = path
        self._write()

    def add_step(self, metrics: Metrics, state: str) -> None:
        self._entries.steps.append(metrics)
        self._entries.state = state
        self._write()

    def next_scores(self) -> list[list[float]] | None:
        """Return what was computed at the start of the training when it was asked as often as now; None if it was not."""
        self._asked += 1
        known = self._entries.scores
        return known[self._asked - 1] if self._asked <= len(known) else None

    def add_scores(self, found: list[list[float]]) -> None:
        """Keep what was computed before the first step: a later process cannot compute it again."""
        self._entries.scores.append(found)
        self._write()

    def _read(self) -> Iterator[bytes]:
        """Yield what this machine has noted, and what the last one of all did."""
        yield self._file.read_bytes() if self._file.exists() else b""
        yield (self._objects and self._objects.get(self._place)) or b""

    def _write(self) -> None:
        data = self._entries.model_dump_json().encode()
        write_atomic(self._file, data)
        if self._objects:
            with suppress(BusyError):  # the next one may come through, and holds all that this one does
                self._objects.put(self._place, data)


def _parsed(data: bytes, identity: dict[str, str]) -> _Entries:
    with suppress(ValidationError):
        found = _Entries.model_validate_json(data)
        if found.identity == identity:
            return found
    return _Entries(identity=identity)
