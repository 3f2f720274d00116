"""Compute a night's use of the conversations: the turns that it was given, judged and trained on, and the judge's accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef
from clawpipe.learn.evaluation.verdict.verdict import Decision
from clawpipe.record.nights.status import NightStatus
from clawpipe.start.simulation.conversation import Talk
from clawpipe.start.simulation.report import LiveNight

_JUDGE = "judge"


def live_night(home: Home, status: NightStatus, talks: Sequence[Talk]) -> LiveNight:
    """Return the figures of a night that has a verdict.

    Args:
        talks: all conversations, with the environment's verdicts, which the night has not seen.
    """
    rows = list(_made(home, status, "fit_vocabulary", ["trajectory_id", "session_id", "turns"]))
    scores = [row for row in _made(home, status, "score", ["trajectory_id", "turn", "origin", "value"]) if _of_turn(row)]
    candidate = status.heldout.get("candidate")
    promoted = status.verdict == Decision.PROMOTE and status.model
    return LiveNight(
        night=status.night,
        verdict=status.verdict or "",
        reason=status.reasons[0] if status.reasons else "",
        version=str(status.model.version) if promoted and status.model else None,
        captured=sum(turn["kind"] == "main" for row in rows for turn in row["turns"]),
        judged=sum(score["value"] != 0 for score in scores),
        agreed=_agreed(rows, scores, talks),
        trained=sum(len(row["turns"] or ()) for row in _made(home, status, "curate", ["turns"])),
        heldout=candidate.success if candidate else None,
        seconds=round(status.seconds, 1),
    )


def _of_turn(row: dict[str, Any]) -> bool:
    return row["origin"] == _JUDGE and row["turn"] is not None


def _made(home: Home, status: NightStatus, step: str, columns: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of what a round's step made."""
    store = open_store(home)
    for entry in status.steps:
        output = entry.artifacts.get("output")
        if entry.name.endswith(f"/{step}") and isinstance(output, DatasetRef):
            yield from read_dataset(store, output, columns).to_pylist()


def _agreed(rows: Sequence[dict[str, Any]], scores: Sequence[dict[str, Any]], talks: Sequence[Talk]) -> float | None:
    """Return the share of judged conversations that are called good or bad by judge and environment alike."""
    sessions = {row["trajectory_id"]: row["session_id"] for row in rows}
    judged = {
        sessions[score["trajectory_id"]]: score["value"] > 0
        for score in scores
        if score["value"] and score["trajectory_id"] in sessions
    }
    known = [talk.success == judged[talk.session] for talk in talks if talk.session in judged]
    return round(sum(known) / len(known), 4) if known else None
