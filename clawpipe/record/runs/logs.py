"""Read the log files of a run's night, once or as they grow."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from clawpipe.core.store.home import Home
from clawpipe.record.nights.files import run_dir
from clawpipe.record.runs.listing import find_run
from clawpipe.record.runs.record import Run
from clawpipe.record.runs.recording import EVENTS

_POLL_SECONDS = 0.3
_TAIL_BYTES = 1 << 20  # of a file, from which its last lines are taken


class Line(NamedTuple):
    file: str
    text: str


def log_files(home: Home, run: Run) -> list[Path]:
    """Return the log files of the run's night, one for each process and one of events; runs of one night share them."""
    directory = run_dir(home, run.night) / "logs" if run.night else None
    return sorted(path for path in directory.iterdir() if path.is_file()) if directory and directory.is_dir() else []


def last_lines(home: Home, run: Run, limit: int) -> list[Line]:
    """Return at most the `limit` last lines of each file."""
    return [Line(path.name, text) for path in log_files(home, run) for text in _tail(path, limit)]


def follow(home: Home, run: Run, limit: int) -> Iterator[Line]:
    """Yield the last lines of each file, then what is added to any of them, until the run has ended."""
    places = {path: path.stat().st_size for path in log_files(home, run)}
    for path, size in places.items():
        yield from (Line(path.name, text) for text in _tail(path, limit, size))
    while True:
        run = find_run(home, run.id)  # before the files are read: what is written before its end is not missed
        for path in log_files(home, run):
            added, places[path] = _added(path, places.get(path, 0))
            yield from (Line(path.name, text) for text in added)
        if run.has_ended:
            return
        time.sleep(_POLL_SECONDS)


def readable(line: Line) -> str:
    """Return a line for people: an event of the night in words, any other line as it is."""
    if line.file != EVENTS:
        return line.text
    try:
        event = json.loads(line.text)
        known = {
            key: value for key, value in event.items() if key not in ("time", "run", "night", "event") and value not in (None, {})
        }
        facts = " ".join(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in known.items())
        return f"{event['time'][:19]} {event['run']} {event['event']} {facts}".rstrip()
    except (ValueError, KeyError, TypeError, AttributeError):
        return line.text


def _tail(path: Path, limit: int, size: int | None = None) -> list[str]:
    end = path.stat().st_size if size is None else size
    with path.open("rb") as file:
        file.seek(max(end - _TAIL_BYTES, 0))
        lines = file.read(min(end, _TAIL_BYTES)).decode(errors="replace").splitlines()
    return list(deque(lines, maxlen=limit))


def _added(path: Path, place: int) -> tuple[list[str], int]:
    """Return the whole lines after `place`, and the place after them."""
    with path.open("rb") as file:
        file.seek(place)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode(errors="replace").splitlines(), place + len(whole)
