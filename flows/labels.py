"""Which label a night that starts now has: the date in it is the schedule's, and an interrupted night keeps its own."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from contextlib import suppress

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError, ClawpipeError, StoppedError
from clawpipe.record.nights.files import DATE, has_verdict, night_label, run_dir, settings_digest
from clawpipe.record.nights.record import read_record
from clawpipe.record.nights.status import read_status
from flows.datasets import overtaken

_GOES_ON = (BusyError.exit_code, StoppedError.exit_code)  # exit codes of nights that have not ended


def labelled(home: Home, config: NightConfig, moment: datetime.datetime | None = None, zone: str | None = None) -> NightConfig:
    """Return the settings with their label: that of an interrupted night with these settings, else with the date filled in.

    Args:
        moment: when the night was due; now unless given.
        zone: the time zone whose date counts; that of the settings unless given.
    """
    if DATE not in config.night:
        return config
    label = next(_interrupted(home, config), None) or night_label(config, moment, zone)
    return config.model_copy(update={"night": label})


def _interrupted(home: Home, config: NightConfig) -> Iterator[str]:
    """Yield the labels of nights with these settings that started and have not ended: killed, stopped, or told to try again. One
    whose data another night has used meanwhile has nothing left to do."""
    pattern = re.compile(r"\d{4}-\d\d-\d\d".join(map(re.escape, config.night.split(DATE))))
    for directory in sorted(home.runs.glob(f"*-{settings_digest(config)}"), reverse=True):
        with suppress(ClawpipeError):  # a damaged record is told when its night runs
            record = read_record(home, directory.name)
            if (
                record
                and pattern.fullmatch(record.label)
                and not has_ended(home, record.night)
                and not overtaken(home, config, record)
            ):
                yield record.label


def has_ended(home: Home, night: str) -> bool:
    """Return whether a night that started has reached a verdict, or an error that is no reason to try again.

    Raises:
        DataError: its status is damaged.
    """
    if has_verdict(home, night) or not (run_dir(home, night) / "status.json").exists():
        return True
    status = read_status(home, night)
    return status.error is not None and status.exit_code not in _GOES_ON
