"""The events of a night that has ended."""

from __future__ import annotations

from collections.abc import Iterator

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.home import Home
from clawpipe.record.nights.conclude import evidence_warning
from clawpipe.record.nights.files import REPORT, run_dir
from clawpipe.record.nights.status import Figures, NightStatus, verdicts
from clawpipe.record.notifications.events import Event, event

_PROMOTE = "PROMOTE"


def events_of_verdict(home: Home, status: NightStatus, model: str, in_a_row: int) -> Iterator[Event]:
    """Yield the events of a night with a verdict.

    Args:
        in_a_row: nights without PROMOTE after which their number is an event.
    """
    evidence = evidence_line(status)
    about: JsonObject = {"night": status.night, "model": model, "report": report_address(home, status.night)}
    text = f"{status.verdict}: {status.reasons[0] if status.reasons else evidence}"
    yield event(home, "night.verdict", text, about=status.verdict or "", verdict=status.verdict, evidence=evidence, **about)
    if status.verdict != _PROMOTE and len(row := _without_promotion(home, model, in_a_row)) == in_a_row:
        yield event(home, "nights.without_promotion", f"{in_a_row} nights in a row: {', '.join(row)}", **about)
    if signs := _signs(status):
        yield event(home, "signs.hacking", " ".join(signs), **about)
    if text := evidence_warning(status):
        yield event(home, "evidence.low", text, **about)


def failure(home: Home, night: str, model: str, error: str) -> Event:
    """Return the event of a night that an error ended. The same error of the same night is told once."""
    line = " ".join(error.split())
    return event(home, "night.failed", line, about=line, error=line, night=night, model=model)


def evidence_line(status: NightStatus) -> str:
    """Return the held-out figures in one line: `candidate 0.331 [0.263, 0.407], champion 0.300 [0.235, 0.375], n=160`."""
    known: list[tuple[str, Figures]] = [(role, one) for role, one in reversed(status.heldout.items()) if one]
    figures = [f"{role} {one.success:.3f} [{one.low:.3f}, {one.high:.3f}]" for role, one in known]
    return ", ".join([*figures, f"n={known[0][1].n}"]) if known else "no held-out item was answered"


def report_address(home: Home, night: str) -> str | None:
    report = run_dir(home, night) / REPORT
    return report.as_uri() if report.exists() else None


def _without_promotion(home: Home, model: str, most: int) -> list[str]:
    """Return the latest nights of the model, at most `most`, back to the last PROMOTE."""
    row: list[str] = []
    for status in verdicts(home, model):
        if status.verdict == _PROMOTE or len(row) == most:
            break
        row.append(f"{status.night} {status.verdict}")
    return row


def _signs(status: NightStatus) -> list[str]:
    """Return the verdict's signs that a reward is gamed, in sentences."""
    return next((list(step.details.get("warnings", ())) for step in status.steps if step.name == "gate"), [])
