"""Conversations of a file as a night's judge would be given them, once they were ingested; none of them is stored."""

from __future__ import annotations

from collections.abc import Iterator

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.home import Home
from clawpipe.data.importers.read.read import read_stream
from clawpipe.data.importers.read.reading import Reading
from clawpipe.data.importers.record import Conversation
from clawpipe.data.ingest.intake.clean import Cleaner
from clawpipe.data.ingest.intake.rows import canonical_json, marks
from clawpipe.data.privacy.redact import redactor
from clawpipe.data.privacy.rules import rules_of


def conversations_of(file: str, reading: Reading | None = None) -> Iterator[tuple[Conversation, JsonObject]]:
    """Yield the conversations of a file, in any format that `clawpipe ingest` reads, without secrets; each with its row of
    `trajectories`, as that of a text, which is named by its number.

    Args:
        reading: receives the counts of lines, and of those that cannot be read.

    Raises:
        ClawpipeError: the file cannot be read, or the home's `privacy.yaml` is wrong.
    """
    read = (record for record in read_stream([file], reading=reading) if isinstance(record, Conversation))
    with redactor(1, rules_of(Home.from_env().root)) as redact:
        cleaner = Cleaner(redact)
        for number, record in enumerate(read):
            [(clean, _)] = cleaner.conversations([record])
            yield clean, _row(number, clean)


def rejected_lines(reading: Reading) -> str:
    """Return what is to say of lines that cannot be read; "" if there are none."""
    reasons = ", ".join(f"{count} x {reason}" for reason, count in reading.rejected.most_common(3))
    return f"{reading.rejected.total()} of {reading.lines} lines cannot be read: {reasons}" if reasons else ""


def _row(number: int, one: Conversation) -> JsonObject:
    return {
        "trajectory_id": str(number),
        "source": "imported",
        "messages": [message.as_dict() for message in one.messages],
        "turns": [],
        "kinds": list(one.kinds),
        "tokens": "none",
        "tools": one.tools,
        "extra": canonical_json(marks(one)),
    }
