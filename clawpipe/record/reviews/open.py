"""The decisions of a home: in its database, or where its machines share them."""

from __future__ import annotations

from pathlib import Path

from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import shared_objects
from clawpipe.record.reviews.database import DatabaseDecisions
from clawpipe.record.reviews.decisions import Decision, Decisions
from clawpipe.record.reviews.shared import SharedDecisions


def decisions_file(home: Home) -> Path:
    return home.root / "reviews" / "decisions.sqlite"


def open_decisions(home: Home) -> Decisions:
    """Return the decisions; where machines share the home, what this one has recorded before is among them from then on.

    Raises:
        DataError: the file is damaged.
        ConfigError: this machine had decisions before it shared the home, and so had another one.
    """
    file = decisions_file(home)
    if not shared_objects():
        return DatabaseDecisions(file)
    shared = SharedDecisions(home)
    if file.exists():
        own = DatabaseDecisions(file)
        shared.bring(own.every(), str(file))
        own.close()
        for path in file.parent.glob(f"{file.name}*"):
            path.unlink(missing_ok=True)
    return shared


def every_decision(home: Home) -> list[Decision]:
    """Return all decisions, oldest first; a home in which nobody has decided anything gets no file."""
    if not (decisions_file(home).exists() or shared_objects()):
        return []
    decisions = open_decisions(home)
    try:
        return decisions.every()
    finally:
        decisions.close()


def last_decisions(home: Home) -> dict[str, Decision]:
    """Return the decisions that count, by row."""
    last = {one.row_id: one for one in every_decision(home)}
    return {row: last[row] for row in sorted(last) if last[row].verdict != "open"}
