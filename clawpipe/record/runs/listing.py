"""List runs, the newest first, and find one by its id, its night or its run in Prefect. Only what is listed is read."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from itertools import chain, islice

from clawpipe.core.store.home import Home
from clawpipe.errors import ClawpipeError, DataError, NotFoundError
from clawpipe.record.nights.files import list_nights, run_dir
from clawpipe.record.nights.status import read_status
from clawpipe.record.runs.record import Run, State, read_record, record_ids
from clawpipe.record.runs.waiting import waiting_runs


def list_runs(
    home: Home, limit: int | None = None, state: State | None = None, model: str | None = None, day: str = ""
) -> list[Run]:
    """Return runs of this home: those that wait in Prefect's queue, then the others, the newest first.

    Args:
        limit: most runs to return; None: all.
        state: only runs in this state.
        model: only runs for this registered model.
        day: only runs that started on this day (UTC), as `2026-11-25`, or in this month, as `2026-11`.
    """
    found = chain(waiting_runs(home) if state in (None, "pending") else (), _started(home, day))
    chosen = (
        run
        for run in found
        if (state in (None, run.state)) and (model is None or model == run.model) and run.started.startswith(day)
    )
    return list(islice(chosen, limit))


def find_run(home: Home, name: str) -> Run:
    """Return the run with this id, or whose id alone begins so; or the newest run of this night, or of this run in Prefect.

    Raises:
        NotFoundError: there is none, or the beginning fits several.
        DataError: its record is damaged.
    """
    ids = record_ids(home)
    fitting = [run_id for run_id in ids if run_id.startswith(name)] if name else []
    if name in ids or len(fitting) == 1:
        return read_record(home, name if name in ids else fitting[0])
    if fitting:
        raise NotFoundError(f"{name} begins the ids of {len(fitting)} runs", str(home.root), "write more of it, e.g. " + fitting[0])
    found = next((run for run in list_runs(home) if name in (run.night, run.flow_run, run.id)), None)
    if found is None:
        raise NotFoundError(f"no run {name!r}", str(home.root), "`clawpipe runs list` shows the runs of this home, with their ids")
    return found


def newest_run(home: Home) -> Run:
    """Return the run that started last.

    Raises:
        NotFoundError: nothing has run here.
    """
    if found := next(_started(home, ""), None):
        return found
    raise NotFoundError("no night has run here", str(home.root), "start one: clawpipe run --config configs/demo.yaml")


def _started(home: Home, day: str) -> Iterator[Run]:
    ids, prefix = record_ids(home), day.replace("-", "")
    for run_id in ids:
        if run_id.startswith(prefix) and (found := _read(home, run_id)):
            yield found
    yield from _before_records(home, ids[-1] if ids else None)


def _read(home: Home, run_id: str) -> Run | None:
    """Return a run; of one whose record is damaged, that; None if it was withdrawn meanwhile. The others must be listed all the
    same."""
    try:
        return read_record(home, run_id)
    except NotFoundError:
        return None
    except DataError as error:
        return Run(id=run_id, state="failed", why=error.what.splitlines()[0])


def _before_records(home: Home, oldest: str | None) -> Iterator[Run]:
    """Yield the nights that ran before runs had records, each as one run that bears the night's id.

    They are those that nothing has written to since the first run with a record.
    """
    for night in reversed(list_nights(home)):
        written = datetime.datetime.fromtimestamp(run_dir(home, night).stat().st_mtime, datetime.UTC)
        if oldest is None or f"{written:%Y%m%dT%H%M%S}" < oldest[:15]:
            yield _of_night(home, night, written.isoformat(timespec="seconds"))


def _of_night(home: Home, night: str, written: str) -> Run:
    run = Run(id=night, night=night, model=_model(home, night), started=written, ended=written, state="failed")
    try:
        status = read_status(home, night)
    except ClawpipeError as error:
        return run.model_copy(update={"why": error.what.splitlines()[0]})
    state = "completed" if status.verdict and not status.error else "failed"
    why = (status.error or "").partition("\n")[0] or (None if status.verdict else "it has not come to its end")
    return run.model_copy(update={"state": state, "why": why, "verdict": status.verdict})


def _model(home: Home, night: str) -> str:
    try:
        return str(json.loads((run_dir(home, night) / "config.json").read_bytes())["registry"]["model_name"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
