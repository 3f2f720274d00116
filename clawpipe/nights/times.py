"""How long a night's work took: of each step in the run that did it, and of all runs that did any. A rerun changes none of it.

runs/<night>/times.json keeps what `status.json`, which every run begins anew, would forget.
"""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from clawpipe.nights.record import StepEntry
from clawpipe.store.files import write_atomic


class Spent(BaseModel):
    """Time that a step took, and what it was recorded under; None: it does the same every run."""

    key: str | None
    seconds: float


class Spending(BaseModel):
    """The file."""

    total: float = Field(default=0.0, description="seconds of all runs that did any work")
    steps: dict[str, Spent] = Field(default_factory=dict)


class Times:
    """The times of one night, from the start of a run on. A file that is damaged counts as none: times are no result."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "times.json"
        self._begun = time.monotonic()
        self._known = self._read()
        self._earlier = self._known.total
        self._worked = False

    def told(self, entry: StepEntry) -> StepEntry:
        """The entry with the time that its work took, whichever run did it."""
        known, again = self._known.steps.get(entry.name), entry.state == "cached" or entry.key is None
        if again and known and known.key == entry.key:
            return entry.model_copy(update={"seconds": known.seconds})
        self._worked = self._worked or not again
        if entry.state != "cached":
            self._known.steps[entry.name] = Spent(key=entry.key, seconds=entry.seconds)
        return entry

    def total(self) -> tuple[float, float | None]:
        """Seconds of the runs that did the work, this one among them if it did any; else also those of this rerun."""
        run = round(time.monotonic() - self._begun, 3)
        if self._earlier and not self._worked:
            return self._earlier, run
        self._known.total = round(self._earlier + run, 3)
        return self._known.total, None

    def save(self) -> None:
        write_atomic(self._path, self._known.model_dump_json(indent=2).encode())

    def _read(self) -> Spending:
        try:
            return Spending.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            return Spending()
