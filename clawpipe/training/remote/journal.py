"""The journal of a training at a service: what a later process needs to go on from the last optimizer step that was saved."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from clawpipe.store.files import write_atomic

Metrics = dict[str, float]


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid")

    identity: dict[str, str]
    state: str | None = None
    steps: list[Metrics] = []
    scores: list[list[list[float]]] = []
    samplers: dict[str, str] = {}


class Journal:
    """What is known of a training, in a file that is replaced as a whole.

    Attributes:
        state: path of the weights and the optimizer at the service after the last step in `steps`; None before the first.
        steps: metrics of the optimizer steps so far.
        samplers: where the service keeps policies for sampling, by name.
    """

    def __init__(self, file: Path, identity: dict[str, str]) -> None:
        """Read the file; that of another training, with other settings, rows or code, counts as none."""
        self._file = file
        self._entries = _read(file, identity)
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

    def _write(self) -> None:
        write_atomic(self._file, self._entries.model_dump_json().encode())


def _read(file: Path, identity: dict[str, str]) -> _Entries:
    try:
        found = _Entries.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return _Entries(identity=identity)
    return found if found.identity == identity else _Entries(identity=identity)
