"""Show the progress of a night on a terminal: a live line for the running step, and a plain line for each finished one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as LiveLines
from rich.table import Column
from rich.text import Text
from rich.tree import Tree

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.record.lineage.traced import Source, VersionTrace
from clawpipe.record.nights.status import RegisteredModel, StepEntry
from clawpipe.record.reporting.wording import (
    STEP_WIDTH,
    WIDTH,
    duration,
    elided,
    model_title,
    moment,
    one_line,
    reasons,
    rows,
    short,
    shortened,
)

_BAR_WIDTH = 12
_NOTE_WIDTH = 22
_ITEMS = 3  # of a training, in a trace
_GUIDE = 4  # columns of a tree's guide, a level
_PATH_WIDTH = 1 << 15  # more than any path has
_OUTCOME_WIDTH = WIDTH - STEP_WIDTH - len("   stopped 12m 04s  ")
_COLOURS = {"ran": "green", "cached": "dim", "stopped": "red"}


class Progress:
    """A `clawpipe.record.nights.journal.Watcher` for people, used as a context manager. It writes to stderr only.

    Live lines need a terminal; elsewhere only the plain lines are written.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._lines = LiveLines(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, max_width=STEP_WIDTH)),
            _Bar(bar_width=_BAR_WIDTH),
            TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True, max_width=_NOTE_WIDTH)),
            TimeElapsedColumn(),
            console=self._console,
            disable=not (self._console.is_interactive and self._console.file.isatty()),
            transient=True,
            refresh_per_second=4,
            redirect_stdout=False,  # stdout may be JSON for another program
            redirect_stderr=False,
        )
        self._running: dict[str, tuple[TaskID, float]] = {}
        self._lock = threading.Lock()  # a step's own threads report progress while it ends

    def __enter__(self) -> Progress:
        self._lines.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Print a line for each step that did not finish."""
        for step, (_, begun) in list(self._running.items()):
            self._leave(step, "stopped", time.monotonic() - begun, "")
        self._lines.stop()

    def started(self, step: str) -> None:
        if step not in self._running:
            self._running[step] = self._lines.add_task(one_line(step), total=None, note=""), time.monotonic()

    def progress(self, step: str, done: float, total: float, note: str) -> None:
        with self._lock:
            if step in self._running:
                line, _ = self._running[step]
                self._lines.update(line, completed=done, total=total, note=f"{done:g}/{total:g} {one_line(note)}")

    def updated(self, step: str, metrics: Mapping[str, Any]) -> None: ...

    def warned(self, text: str) -> None:
        """Print the whole warning, whatever its length: warnings are rare, and say what to do."""
        with self._lock:
            self._console.print(Text(f"  warning: {one_line(text)}", "yellow"), soft_wrap=True, highlight=False)

    def finished(self, entry: StepEntry) -> None:
        self._leave(entry.name, entry.state, entry.seconds, _outcome(entry))

    def _leave(self, step: str, state: str, seconds: float, outcome: str) -> None:
        with self._lock:
            if step in self._running:
                self._lines.remove_task(self._running.pop(step)[0])
            self._lines.refresh()  # or the next line would be printed above the removed one
        line = Text.assemble("  ", elided(step, STEP_WIDTH, pad=True), " ", (f"{state:<7}", _COLOURS.get(state, "")))
        line.append(f" {duration(seconds):>7}  {outcome}")
        line.truncate(min(self._console.width, WIDTH), overflow="ellipsis")
        line.rstrip()
        self._console.print(line, soft_wrap=True, highlight=False)


def _outcome(entry: StepEntry) -> str:
    """Return row counts with reasons if they fit, else with the number of filtered rows; the closing table has all."""
    text = ", ".join(filter(None, [rows(entry), *reasons(entry.filtered), *shortened(entry.details)]))
    if len(text) <= _OUTCOME_WIDTH:
        return text
    return f"{rows(entry)}, {sum(entry.filtered.values())} filtered"


class _Bar(BarColumn):
    """A bar that appears once the total is known."""

    def render(self, task: Task) -> RenderableType:  # type: ignore[override]
        return Text("") if task.total is None else super().render(task)


@contextmanager
def waiting(what: str, quiet: bool = False) -> Iterator[None]:
    """Say on stderr what a block waits for: on a terminal with the seconds, until the block ends; elsewhere in one line.

    Args:
        quiet: say nothing, for a program that reads the output.
    """
    console = Console(stderr=True, quiet=quiet)
    if quiet or not (console.is_interactive and console.file.isatty()):
        console.print(Text(what), soft_wrap=True, highlight=False)
        yield
        return
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with LiveLines(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as lines:
        lines.add_task(one_line(what), total=None)
        yield


def print_trace(traced: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the result of `trace_version`, in lines no wider than the terminal; but the path of a file stays whole."""
    console = console or Console(highlight=False)
    wide = Console(width=_PATH_WIDTH, highlight=False, file=console.file, force_terminal=console.is_terminal)
    wide.print(_trace_tree(VersionTrace.model_validate(traced), console.width))


def _trace_tree(found: VersionTrace, width: int) -> Tree:
    """Draw it with the first items of each training."""
    model = RegisteredModel(**found.model.model_dump(include={"name", "version", "aliases"}), digest=found.adapter)
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    tree = Tree(_line(f"{model_title(model)}, adapter {short(found.adapter)}", width, "bold"), guide_style="dim")
    inner = width - _GUIDE
    tree.add(_line(counts, inner, "dim"))
    if found.choice:
        tree.add(_line(found.choice, inner, "dim"))
    for place in found.model.deployed:
        tree.add(_line(f"{place['target']}: {place['state']} by {place['by']}, {place['at']}, as {place['model']}", inner, "dim"))
    for training in found.trainings:
        samples = training.samples
        branch = tree.add(_line(f"{training.step}: {samples.rows} samples {short(samples.digest)} (night {training.night})", inner))
        if training.trajectories is None:
            branch.add(_line("lost: the store no longer holds these samples", inner - _GUIDE, "red"))
            continue
        for item, names in list(training.trajectories.items())[:_ITEMS]:
            _add_item(branch, found, item, names, inner - _GUIDE)
        if len(training.trajectories) > _ITEMS:
            left = len(training.trajectories) - _ITEMS
            branch.add(_line(f"... {left} more items; --json lists all", inner - _GUIDE, "dim"))
    if found.base:
        tree.add(_line(f"{found.base.name} {short(found.base.digest)}, untrained", inner))
    return tree


def _add_item(branch: Tree, found: VersionTrace, item_id: str, names: list[str], width: int) -> None:
    item = found.items.get(item_id)
    about = f", {item.environment}: {item.question}" if item else ""
    leaf = branch.add(_line(f"item {item_id}{about}", width))
    for name in names[:2]:
        source = found.sources.get(name)
        told = f"trajectory {name}{_cut(found.compressed.get(name))}{_owners(source)}"
        trajectory = leaf.add(_line(told, width - _GUIDE))
        if source and source.file:
            trajectory.add(Text(one_line(f"{source.file}:{source.line}"), no_wrap=True, overflow="ignore"))
        if review := found.reviews.get(name):
            trajectory.add(_line(f"{review.verdict} by {review.by} at {moment(review.at)}", width - 2 * _GUIDE))
    if len(names) > 2:
        leaf.add(_line(f"... {len(names) - 2} more trajectories", width - _GUIDE, "dim"))


def _owners(source: Source | None) -> str:
    owners = [("session", source.session), ("user", source.user)] if source else []
    return "".join(f", {kind} {name}" for kind, name in owners if name)


def _cut(note: JsonObject | None) -> str:
    return f", shortened from {note['tokens'][0]} to {note['tokens'][1]} tokens" if note else ""


def _line(text: str, width: int, style: str = "") -> Text:
    line = elided(text, width)
    line.stylize(style)
    return line
