"""Copies of the records of nights that other machines of a home ran, see `clawpipe.core.store.machines`.

A file is fetched if it is not here, or somebody else has written it there since: the records of a night that runs here are newer
here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import shared_objects
from clawpipe.core.store.objects import Objects

NIGHTS = "nights"  # the folder of the records in the storage
LINEAGE = "lineage.json"
BEGUN = ("config.json", "night.json")  # night.json last: with it, the night is there
ENDED = ("status.json", LINEAGE)  # the lineage last: with it, the night has a verdict; a report holds transcripts
FRESH_SECONDS = 30.0  # for so long a process that lists nights again need not ask what others have written
_SEEN = "nights-seen.json"  # which write of each file this machine has seen
_asked: dict[tuple[Home, str], float] = {}


def look_for_nights(home: Home) -> None:
    """Bring the nights of the other machines, if this process has not done so a moment ago.

    Raises:
        BusyError, ConfigError: the storage cannot be reached.
    """
    shared = None if home.is_of_a_sweep else shared_objects()
    if shared and time.monotonic() - _asked.get((home, shared.url), -FRESH_SECONDS) >= FRESH_SECONDS:
        bring_nights(home, shared)


def bring_nights(home: Home, shared: Objects) -> None:
    """Copy the records of nights that other machines ran into this home."""
    _asked[home, shared.url] = time.monotonic()
    there, seen = shared.stamps(NIGHTS), _seen(home)
    missed = [path for path in there if there[path] != seen.get(path) or not (home.runs / path).exists()]
    for path in _in_order(missed):
        _bring(home, shared, path)
    if missed:
        _keep_seen(home, there)


def have_seen(home: Home, shared: Objects, night: str) -> None:
    """Note that the records of a night were written by this machine, so that it does not bring them back."""
    own = {f"{night}/{name}": stamp for name, stamp in shared.stamps(f"{NIGHTS}/{night}").items()}
    _keep_seen(home, _seen(home) | own)


def _in_order(paths: Iterable[str]) -> list[str]:
    """Return the paths of a night's records, each after those that it stands for."""
    order = {name: number for number, name in enumerate((*BEGUN, *ENDED))}
    parts = [path.split("/") for path in paths]
    known = [(night, name) for night, name in (part for part in parts if len(part) == 2) if name in order and night[0] != "."]
    return [f"{night}/{name}" for night, name in sorted(known, key=lambda one: (one[0], order[one[1]]))]


def _bring(home: Home, shared: Objects, path: str) -> None:
    data, file = shared.get(f"{NIGHTS}/{path}"), home.runs / path
    if data is not None and not (file.exists() and file.read_bytes() == data):
        write_atomic(file, data)
        with suppress(FileNotFoundError):  # the time of a lineage says when its night ended
            os.utime(file, (written := shared.written(f"{NIGHTS}/{path}"), written))


def _seen(home: Home) -> dict[str, str]:
    try:
        found = json.loads((home.root / _SEEN).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _keep_seen(home: Home, seen: Mapping[str, str]) -> None:
    write_atomic(home.root / _SEEN, json.dumps(seen).encode())
