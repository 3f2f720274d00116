"""What a night is called, and where its files are, which a person can read.

runs/<night>/night.json     when the night began, label, number in its curriculum, the champion in service then
runs/<night>/config.json    every setting, with defaults filled in
runs/<night>/times.json     how long each step took in the run that did it
runs/<night>/status.json    steps, held-out figures, verdict, model: what `clawpipe status` prints
runs/<night>/tracking.json  what has been sent to trackers
runs/<night>/logs/          one file per process
runs/<night>/lineage.json, report.html
"""

from __future__ import annotations

import datetime
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.home import Home
from clawpipe.errors import ClawpipeError, ConfigError, DataError, NotFoundError
from clawpipe.record.nights.brought import LINEAGE, look_for_nights

REPORT = "report.html"
DATE = "{date}"  # in a label
_BEGAN = re.compile(rb'\s*\{\s*"began":\s*"([0-9T:.+-]+)"')  # the first field of a record: the rest need not be read
_LONGEST = 255  # bytes of a file's name
_BEGINNING = 128  # bytes that hold it
Parsed = TypeVar("Parsed", bound=BaseModel)


def night_label(config: NightConfig, moment: datetime.datetime | None = None, zone: str | None = None) -> str:
    """Return the label with a date filled in: that of a moment, or today's, in a time zone, or in that of the settings."""
    local = (moment or datetime.datetime.now(datetime.UTC)).astimezone(ZoneInfo(zone or config.timezone))
    return config.night.replace(DATE, local.date().isoformat())


def night_id(config: NightConfig) -> str:
    """Return an id of the label and all settings that change results: the same wherever and whenever the night runs."""
    return f"{night_label(config)}-{settings_digest(config)}"


def settings_digest(config: NightConfig) -> str:
    """Return ten hex digits that stand for all settings that change results."""
    return sha256_json(config)[:10]


def run_dir(home: Home, night: str) -> Path:
    """Return the directory of a night.

    Raises:
        NotFoundError: a night cannot have this name.
        ConfigError: the file system cannot hold the name: its encoding cannot write it, or it is too long.
    """
    if not night or "/" in night or night.startswith("."):
        raise NotFoundError(f"{night!r} cannot be a night", fix="`clawpipe status` lists them")
    try:
        length = len(os.fsencode(night))
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        fix = "set PYTHONUTF8=1, or choose a label in ASCII"
        raise ConfigError(f"files are named in {encoding} here, which cannot write {night!r}", "night", fix) from None
    if length > _LONGEST:
        fix = "choose a shorter label: ten digits that stand for the settings follow it"
        raise ConfigError(f"{night[:20]}... is {length} bytes long, and a file's name may have {_LONGEST}", "night", fix)
    return home.runs / night


def model_of(home: Home, night: str) -> str | None:
    """Return the registered model that a night was for; None if its settings cannot be read."""
    try:
        return json.loads((run_dir(home, night) / "config.json").read_bytes())["registry"]["model_name"]
    except (OSError, ValueError, KeyError, TypeError, ClawpipeError):
        return None


def has_verdict(home: Home, night: str) -> bool:
    """Return whether the night has once reached its end, even if it runs again: its lineage is written last."""
    return (run_dir(home, night) / LINEAGE).exists()


def clear_leftovers(home: Home, night: str) -> None:
    """Remove hidden files that a killed writer left in the night's directory. Call it while holding the night lock."""
    for left in run_dir(home, night).glob(".*"):
        if not left.is_dir():
            left.unlink()


def list_nights(home: Home) -> list[str]:
    """Return the nights of this home in the order in which they began. A night that runs again keeps its place.

    Raises:
        BusyError, ConfigError: machines share the home, and their storage cannot be reached.
    """
    look_for_nights(home)
    nights = [path.parent.name for path in home.runs.glob("*/night.json")]
    return sorted(nights, key=lambda night: (began(home, night), night))


def newest_reported(home: Home) -> str | None:
    """Return the newest night that has a report, which is written at a night's end; None if none has."""
    return next((night for night in reversed(list_nights(home)) if (run_dir(home, night) / REPORT).exists()), None)


def began(home: Home, night: str) -> datetime.datetime:
    """Return when a night began, which a copy of its record still says; records of 0.3 and before were written then."""
    with (home.runs / night / "night.json").open("rb") as record:
        found = _BEGAN.match(record.read(_BEGINNING))
        written = os.fstat(record.fileno()).st_mtime
    with suppress(ValueError):
        if found:
            return datetime.datetime.fromisoformat(found[1].decode())
    return datetime.datetime.fromtimestamp(written, datetime.UTC)


def parsed(model: type[Parsed], path: Path, fix: str) -> Parsed:
    """Parse a file of a night. Raises DataError: it is damaged."""
    try:
        return model.model_validate(json.loads(path.read_bytes()))
    except ValueError as error:
        raise DataError(f"the file is damaged: {error}", str(path), fix) from None
