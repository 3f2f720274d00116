"""Clean what lies beside the store after rows were forgotten: reports and records of nights, unfinished work, and the logs of
ingest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.files import clear
from clawpipe.core.store.home import Home
from clawpipe.core.store.replaced import replaced, successor
from clawpipe.data.ingest.intake.state import log_files
from clawpipe.errors import ClawpipeError
from clawpipe.record.nights.files import REPORT, list_nights, run_dir
from clawpipe.record.nights.status import NightStatus, read_status
from clawpipe.record.reporting.html import write_report
from clawpipe.record.reporting.transcripts import heldout_transcripts


def clean(home: Home, store: Store, ids: str, taken: Mapping[str, str], found: bool) -> list[str]:
    """Clean the files outside of the store: rewrite reports and logs of ingest, delete unfinished work. Returns the nights with new
    reports.

    Args:
        home: the home.
        store: its store.
        ids: a regular expression that finds forgotten ids in file names.
        taken: new digests by old ones.
        found: whether there were rows.
    """
    if found:
        clear(home.work, ignore_errors=True)  # shards and checkpoints of rows that go; what stays is told
    _clean_ingest_state(home, ids, taken)
    nights = [night for night in list_nights(home) if any(old.encode() in _journal(home, night) for old in taken)]
    return [night for night in nights if _write_report(home, store, night)]


def _journal(home: Home, night: str) -> bytes:
    path = run_dir(home, night) / "status.json"
    return path.read_bytes() if path.exists() else b""


def _write_report(home: Home, store: Store, night: str) -> bool:
    """Rewrite the report, which quotes conversations, or delete it if that fails. False if the night has no report."""
    directory = run_dir(home, night)
    if not (directory / REPORT).exists():
        return False
    (directory / REPORT).unlink()
    try:
        config = NightConfig.model_validate_json((directory / "config.json").read_bytes())
        status = read_status(home, night)
    except (ClawpipeError, ValueError, OSError):
        return True
    write_report(status, directory, config, heldout_transcripts(store, _in_force(store, status)))
    return True


def _in_force(store: Store, status: NightStatus) -> NightStatus:
    """Return the journal with replaced datasets exchanged for their successors."""
    known = replaced(store)
    steps = [
        step.model_copy(
            update={
                "artifacts": {
                    role: ref.model_copy(update={"digest": successor(known, ref.digest)}) for role, ref in step.artifacts.items()
                }
            }
        )
        for step in status.steps
    ]
    return status.model_copy(update={"steps": steps})


def _clean_ingest_state(home: Home, ids: str, taken: Mapping[str, str]) -> None:
    """Update the logs of ingest: exchange replaced datasets, and remove files with the id in their names."""
    for log in log_files(home):
        before = text = (log.read() or b"").decode()
        for old, new in taken.items():
            text = text.replace(old, new)
        if (text := _without_files(text, ids)) != before:
            log.write(text.encode())


def _without_files(text: str, ids: str) -> str:
    """Remove files with the id in their path: they are read again, and their rows rejected."""
    try:
        state = json.loads(text)
    except ValueError:
        return text
    files = state.get("files") if isinstance(state, dict) else None
    if not isinstance(files, dict):
        return text
    kept = {name: mark for name, mark in files.items() if not re.search(ids, name)}
    return text if kept == files else json.dumps(state | {"files": kept}, indent=1, ensure_ascii=False)
