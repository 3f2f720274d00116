"""Draw a night's result or plan in at most 80 columns, for `clawpipe run`, `status` and `plan`."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from clawpipe.record.nights.files import REPORT
from clawpipe.record.nights.status import Figures, NightStatus, StepEntry
from clawpipe.record.reporting.judges import judge_lines, review_lines
from clawpipe.record.reporting.wording import (
    MEASURES,
    STEP_WIDTH,
    WIDTH,
    candidate,
    duration,
    elided,
    interval,
    model_title,
    no_verdict,
    one_line,
    reasons,
    rerun,
    shortened,
)

_KEY_WIDTH = 40
_NAME_WIDTH = 32  # columns of a setting's name
_DETAIL_INDENT = len("policy version  ")  # columns before a detail's text
_COLOURS = {"PROMOTE": "bold green", "HOLD": "bold yellow", "REJECT": "bold red"}


def summary(status: NightStatus) -> RenderableType:
    """Draw the night's steps, held-out figures, verdict and model, at most 80 columns wide on any console.

    Text from data is shown literally: it cannot contain markup or control the terminal.
    """
    title = Rule(elided(f"night {status.night}", WIDTH - 6), align="left", style="dim")
    parts = [title, *_compared(status), _steps(status.steps), "", _heldout(status), "", _verdict(status), "", _details(status)]
    return Constrain(Group(*parts), WIDTH)


def _compared(status: NightStatus) -> list[RenderableType]:
    return [Text(one_line(status.compared)), ""] if status.compared else []


def nights_table(nights: Sequence[NightStatus]) -> RenderableType:
    """Draw one line per night, in the given order: the candidate's success on the night's items, and on the benchmark's, which stay
    the same."""
    table = _table("Night", "Verdict", "Candidate", "Benchmark", "Version", "Time")
    for status in nights:
        table.add_row(
            elided(status.night, 30),
            _verdict_word(status.verdict),
            _success(status.heldout.get("candidate")),
            _success(status.benchmark.get("candidate")),
            elided(status.model.version if status.model else "-", 7),
            duration(status.seconds),
        )
    return Constrain(table, WIDTH)


def _success(figures: Figures | None) -> str:
    return f"{figures.success:.3f}" if figures else "-"


def plan_table(plan: Mapping[str, Any]) -> RenderableType:
    """Draw a plan: `night`, its `config` (nested, as JSON) and its `steps` (name, key or None, would)."""
    title = Rule(elided(f"night {plan['night']}", WIDTH - 6), align="left", style="dim")
    settings = _grid((name, json.dumps(value, ensure_ascii=False)) for name, value in _flat(plan["config"]))
    table = _table("Step", "Would", "Key")
    for step in plan["steps"]:
        would = Text(step["would"], "dim" if step["would"] == "cached" else "green")
        table.add_row(elided(step["name"], STEP_WIDTH), would, elided(step["key"] or "-", _KEY_WIDTH))
    return Constrain(Group(title, settings, "", table), WIDTH)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings by dotted name, as overrides are written."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _steps(steps: Sequence[StepEntry]) -> Table:
    table = _table("Step", "State", "Time", "Rows in", "Rows out", "Filtered")
    for number in (2, 3, 4):
        table.columns[number].justify = "right"
    table.columns[-1].no_wrap = False
    for step in steps:
        counts = [str(count) if step.rows_in or step.rows_out else "" for count in (step.rows_in, step.rows_out)]
        state = Text(one_line(step.state), "dim" if step.state == "cached" else "")
        left_out = Text("\n".join([*reasons(step.filtered), *shortened(step.details)]))
        table.add_row(elided(step.name, STEP_WIDTH), state, duration(step.seconds), *counts, left_out)
    return table


def _heldout(status: NightStatus) -> Table:
    table = _table("Held-out", f"{MEASURES[status.measure]}  [interval]  items")
    for role, figures in status.heldout.items():
        table.add_row(Text(one_line(role)), interval(figures))
    for role, figures in status.benchmark.items():
        table.add_row(Text(one_line(f"benchmark/{role}")), interval(figures))
    return table


def _verdict(status: NightStatus) -> RenderableType:
    if status.verdict is None:
        return Group(Text(f"No verdict: {no_verdict(status)}.", "bold"), *_indented((status.error or "").splitlines()))
    return Group(_verdict_word(status.verdict), *_indented(status.reasons))


def _indented(texts: Iterable[str]) -> list[Text]:
    return [line for text in texts for line in _row("", text, 2)]


def _verdict_word(verdict: str | None) -> Text:
    return Text(one_line(verdict or "-"), _COLOURS.get(verdict or "", ""))


def _details(status: NightStatus) -> Group:
    report = Path(status.run_dir) / REPORT
    entries = {
        **({"candidate": elided(candidate(status.choice), WIDTH - _DETAIL_INDENT).plain} if status.choice else {}),
        "model": model_title(status.model) if status.model else "none registered",
        "policy version": status.policy_version or "-",
        **({"evidence left": status.evidence_left.sentence()} if status.evidence_left else {}),
        "report": _short_path(report) if report.exists() else "none",
        "total time": duration(status.seconds),
        **({"last run": rerun(status.rerun_seconds)} if status.rerun_seconds is not None else {}),
    }
    return _grid(
        [
            *entries.items(),
            *judge_lines(status.judges),
            *review_lines(status.reviews),
            *(("warning", text) for text in status.warnings),
        ]
    )


def _grid(entries: Iterable[tuple[str, str]]) -> Group:
    """Draw names, and behind them texts that break between words: a path is never broken, so that it can be copied."""
    rows = [(elided(name, _NAME_WIDTH).plain, text) for name, text in entries]
    indent = max((len(name) for name, _ in rows), default=0) + 2
    return Group(*(line for name, text in rows for line in _row(name, text, indent)))


def _row(name: str, text: str, indent: int) -> Iterator[Text]:
    for number, part in enumerate(list(_unbroken(text, WIDTH - indent)) or [""]):
        yield Text.assemble((("" if number else name).ljust(indent), "dim"), part, no_wrap=True, overflow="ignore")


def _unbroken(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a text. A word that fits no line is broken unless it is a path or an address."""
    for line in textwrap.wrap(one_line(text), width, break_long_words=False, break_on_hyphens=False):
        yield from [line] if "/" in line else textwrap.wrap(line, width)


def _short_path(path: Path) -> str:
    """Return a path below the current or the home directory relative to it, else the whole path."""
    for root, name in ((Path.cwd(), ""), (Path(os.path.expanduser("~")), "~/")):  # Path.home() raises for a user without one
        if path.is_relative_to(root):
            return name + path.relative_to(root).as_posix()
    return str(path)


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in names:
        table.add_column(name, no_wrap=True)
    return table
