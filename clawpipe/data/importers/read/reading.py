"""The counts of a reading, and rejected lines with their reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from clawpipe.data.importers.record import Conversation, Preference, Prompt
from clawpipe.data.importers.sources.lines import Line, Place
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.untaught import ended, silenced

SHAPES = 50  # forms of lines of no known format that are told apart
_NAMED = 3  # of them in warnings
_KEPT = 64 << 10  # bytes of a refused line
COUNTERS = ("formats", "silent", "outcomes", "answers", "unknown", "rejected")  # fields of a reading that add up


@dataclass(frozen=True)
class Refusal:
    """A rejected line, or a run of blank ones. `data` holds its first bytes, at most 64 KiB; `lines` is the number of lines."""

    file: str
    line: int
    offset: int
    reason: str
    data: bytes = b""
    lines: int = 1


Record = Conversation | Preference | Prompt | Refusal


@dataclass
class Reading:
    """Counts of the files read so far.

    Attributes:
        unmatched: number of judge records without a turn in the files, known at the end.
        outcomes: number of records by columns that look like outcomes, but are not read.
        answers: number of tasks by columns that look like answers, but are not read.
        unknown: number of lines of no known format, by what `shape_of` says of them; of at most `SHAPES` forms.
        silent: number of main turns that are not trained on, by the reasons of `silenced`.
        waiting: number of lines of captured sessions that go on, by file; they are not among `lines`, and are read again.
        rejected: number of rejected lines by reason.
        traces: names of the traces of which calls were read.
        places: the end of the last complete or accepted line of each file; a growing file is read from there. An interrupted
            download has none.
    """

    files: int = 0
    lines: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    unmatched: int = 0
    waiting: Counter[str] = field(default_factory=Counter)
    silent: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    places: dict[str, Place] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    traces: set[str] = field(default_factory=set)

    @property
    def accepted(self) -> int:
        return self.lines - self.rejected.total()

    def reasons(self) -> dict[str, int]:
        return dict(self.rejected)

    def warnings(self) -> Iterator[str]:
        """Yield warnings about turns that are not trained on, and about columns and lines that are not read."""
        for reason, count in self.silent.items():
            yield f"{count} {reason}: they are context, and nothing is learned of them"
        if self.waiting:
            yield f"{self.waiting.total()} lines are of sessions that go on: they are read when these have ended"
        for name, count in self.outcomes.items():
            sounds = "sounds like an outcome and is not read as one"
            yield f"{count} rows say {name!r}, which {sounds}: it is in extra (--map reward={name} reads it)"
        for name, count in self.answers.items():
            sounds = "sounds like an answer and is not read as one"
            yield f"{count} tasks say {name!r}, which {sounds}: it is in extra (--map completion={name} reads it)"
        for shape, count in self.unknown.most_common(_NAMED):
            yield f"{count} lines have no known format ({shape}; docs/ingest.md, any other form)"

    def refuse(self, line: Line, error: Exception) -> Refusal:
        """Count a line that is refused, and return its refusal."""
        reason = str(error) if isinstance(error, RefusedError) else "nested too deeply"
        return self.count_refusal(Refusal(line.file, line.number, line.offset, reason, line.data[:_KEPT]))

    def count_refusal(self, refusal: Refusal) -> Refusal:
        self.rejected[refusal.reason] += 1
        return refusal

    def silenced(self, conversation: Conversation) -> Conversation:
        """Count the turns of a conversation that are not trained on, and return it with those as context."""
        conversation, found = silenced(ended(conversation))
        self.silent += found
        return conversation

    def count_unknown(self, shape: str) -> None:
        """Count a line of no known format; its form is named if it is one of the first."""
        if shape in self.unknown or len(self.unknown) < SHAPES:
            self.unknown[shape] += 1

    def add(self, other: Reading) -> None:
        """Add the counts and places of another reading."""
        self.files, self.lines = self.files + other.files, self.lines + other.lines
        for name in COUNTERS:
            getattr(self, name).update(getattr(other, name))
        self.traces |= other.traces
        for name, place in other.places.items():
            self.places[name] = max(place, self.places.get(name, place), key=lambda one: one.offset)
