"""Word a night's figures, alike in the terminal, the lineage and the report."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rich.text import Text

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.gate import Measure
from clawpipe.learn.evaluation.rounds import Choice
from clawpipe.record.nights.status import Figures, NightStatus, RegisteredModel, StepEntry

MEASURES: dict[Measure, str] = {
    "success": "success",
    "preference accuracy": "prefers the chosen side",
    "tool calls": "makes the recorded calls",
    "judged": "preferred to the rival's",
    "likelihood": "likelier than under the base",
}
WIDTH = 80  # columns; wider terminals get no wider lines, so that logs look the same everywhere
STEP_WIDTH = 26  # columns, for names like `round-10/generate_rollouts`
_GAPS = re.compile(r"\s+")


def one_line(text: str) -> str:
    """Return `text` without line breaks and without characters that control a terminal."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return _GAPS.sub(" ", printable).strip()


def elided(text: str, width: int, *, pad: bool = False) -> Text:
    """Return `text` literally, in one line of at most `width` columns."""
    shown = Text(one_line(text), no_wrap=True)
    shown.truncate(width, overflow="ellipsis", pad=pad)
    return shown


def duration(seconds: float) -> str:
    """Format seconds in at most 7 characters below 100 hours: `41.2 s`, `12m 04s`, `1h 02m`."""
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    minutes = round(seconds / 60)
    return f"{minutes // 60}h {minutes % 60:02d}m"


def rerun(seconds: float) -> str:
    """Word the time of a rerun: `18.8 s, a rerun: all of the work was done before`."""
    return f"{duration(seconds)}, a rerun: all of the work was done before"


def moment(written: str) -> str:
    """Return a time in UTC, as ISO 8601 writes it, for people."""
    return written.replace("T", " ").replace("+00:00", " UTC")


def short(digest: str) -> str:
    """Return the first 8 digits, enough to tell artifacts apart by eye."""
    return digest[:8]


def rows(entry: StepEntry) -> str:
    """Word a step's rows: `256 -> 241 rows`, `288 rows` for a source, "" for a step without rows."""
    if entry.rows_in:
        return f"{entry.rows_in} -> {entry.rows_out} rows"
    return f"{entry.rows_out} rows" if entry.rows_out else ""


def shortened(details: JsonObject) -> list[str]:
    """Return in words what a step has shortened, and what it could not shorten."""
    made, left = details.get("compressed") or {}, details.get("not_compressed") or {}
    done = [f"{made['rows']} shortened by {made['tokens']} tokens"] if made.get("rows") else []
    return [*done, *(f"{rows} not shortened: {why}" for why, rows in sorted(left.items()))]


def reasons(filtered: Mapping[str, int]) -> list[str]:
    """Word counts by reason, the most frequent first: `8 zero-variance group`."""
    ordered = sorted(filtered.items(), key=lambda pair: (-pair[1], pair[0]))
    return [f"{count} {one_line(reason)}" for reason, count in ordered if count]


def interval(figures: Figures | None) -> str:
    """Word a success rate: `0.331  [0.263, 0.407]  n=160`, or "-" without a figure; a mean log-prob follows where there is one."""
    if figures is None:
        return "-"
    nats = "" if figures.log_prob is None else f"  {figures.log_prob:.3f} nats per token"
    return f"{figures.success:.3f}  [{figures.low:.3f}, {figures.high:.3f}]  n={figures.n}{nats}"


def candidate(choice: Choice) -> str:
    """Word which round's policy is the candidate: `round 1 of 2: round 2 lost calc`."""
    lost = [f"round {rate.round} lost {', '.join(rate.lost)}" for rate in choice.rounds if rate.lost]
    best = max((rate.success for rate in choice.rounds[1:]), default=0.0)
    mean = "best" if any(rate.round == choice.round and rate.success == best for rate in choice.rounds) else "as good as the best"
    why = f"{mean} mean success, no slice lost" if choice.rounds else "the last one, none was measured"
    return f"round {choice.round} of {choice.of}: {'; '.join(lost) or why}"


def no_verdict(status: NightStatus) -> str:
    """Word why a night has no verdict: it still runs or was killed, or an error ended it."""
    return "the night ended in an error" if status.error else "the night has not come to its end"


def model_title(model: RegisteredModel) -> str:
    """Word a model's name: `clawpipe-agent version 3 (champion)`."""
    aliases = f" ({', '.join(model.aliases)})" if model.aliases else ""
    return f"{model.name} version {model.version}{aliases}"
