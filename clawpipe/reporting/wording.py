"""How figures of a night are worded, the same in the terminal, in the lineage and in the report."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rich.text import Text

from clawpipe.nights.record import Figures, NightStatus, RegisteredModel, StepEntry

WIDTH = 80  # columns; wider terminals get no wider lines, so that a log looks the same everywhere
STEP_WIDTH = 26  # `round-10/generate_rollouts`
_GAPS = re.compile(r"\s+")


def one_line(text: str) -> str:
    """`text` without line breaks, and without characters that would steer a terminal: it may be anybody's data."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return _GAPS.sub(" ", printable).strip()


def elided(text: str, width: int, *, pad: bool = False) -> Text:
    """`text` in one line of at most `width` columns, as data, never as markup."""
    shown = Text(one_line(text), no_wrap=True)
    shown.truncate(width, overflow="ellipsis", pad=pad)
    return shown


def duration(seconds: float) -> str:
    """At most 7 characters below 100 hours: `41.2 s`, `12m 04s`, `1h 02m`."""
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    minutes = round(seconds / 60)
    return f"{minutes // 60}h {minutes % 60:02d}m"


def rerun(seconds: float) -> str:
    """`18.8 s, a rerun: all of the work was done before`."""
    return f"{duration(seconds)}, a rerun: all of the work was done before"


def short(digest: str) -> str:
    """The first 8 digits, enough to tell artefacts apart by eye."""
    return digest[:8]


def rows(entry: StepEntry) -> str:
    """`256 -> 241 rows`, `288 rows` where none went in, nothing where a step handles no rows."""
    if entry.rows_in:
        return f"{entry.rows_in} -> {entry.rows_out} rows"
    return f"{entry.rows_out} rows" if entry.rows_out else ""


def reasons(set_aside: Mapping[str, int]) -> list[str]:
    """`8 constant group`, the most frequent reason first."""
    ordered = sorted(set_aside.items(), key=lambda pair: (-pair[1], pair[0]))
    return [f"{count} {one_line(reason)}" for reason, count in ordered if count]


def interval(figures: Figures | None) -> str:
    """`0.331  [0.263, 0.407]  n=160`, or a dash where there is no figure."""
    if figures is None:
        return "-"
    return f"{figures.success:.3f}  [{figures.low:.3f}, {figures.high:.3f}]  n={figures.n}"


def no_verdict(status: NightStatus) -> str:
    """Why a night has no verdict: it goes on, was killed, or an error ended it."""
    return "the night ended in an error" if status.error else "the night has not come to its end"


def model_title(model: RegisteredModel) -> str:
    """`clawpipe-agent version 3 (champion)`."""
    aliases = f" ({', '.join(model.aliases)})" if model.aliases else ""
    return f"{model.name} version {model.version}{aliases}"
