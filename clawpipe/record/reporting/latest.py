"""The nights that figures are about: of each model the last one with a verdict, those that failed since, and the last good end."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass

from clawpipe.core.config.metrics import Prices
from clawpipe.core.store.home import Home
from clawpipe.errors import ClawpipeError
from clawpipe.record.nights.files import LINEAGE, list_nights, model_of, run_dir
from clawpipe.record.nights.status import NightStatus, read_status
from clawpipe.record.runs.listing import list_runs


@dataclass
class Latest:
    """The last nights of one model."""

    status: NightStatus | None = None  # None: no night has a verdict yet
    time: float = 0.0  # when it had its verdict, in seconds since 1970
    failed: int = 0  # nights that an error ended since
    success: float | None = None  # when a run last ended well: with a verdict, or because nothing was new


def latest_nights(home: Home) -> dict[str, Latest]:
    """Return the last nights by model. A night that cannot be read is left out."""
    found: dict[str, Latest] = {}
    for night in reversed(list_nights(home)):
        model = model_of(home, night)
        if model is not None and (known := found.setdefault(model, Latest())).status is None:
            _look(home, night, known)
    for model, known in found.items():
        ended = [known.time] if known.status else []
        known.success = max((*ended, *_quiet(home, model)), default=None)
    return dict(sorted(found.items()))


def prices_of(home: Home, night: str) -> Prices | None:
    """Return the price list in a night's settings; None without one, or in those of an earlier version."""
    try:
        prices = json.loads((run_dir(home, night) / "config.json").read_bytes())["metrics"]["prices"]
        return Prices.model_validate(prices) if prices else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _quiet(home: Home, model: str) -> list[float]:
    """Return when the last run that ended well did so, if it did for want of news: a verdict has its time from its night."""
    ended = [run.ended for run in list_runs(home, 1, "completed", model) if run.ended and not run.verdict]
    return [datetime.datetime.fromisoformat(time).timestamp() for time in ended]


def _look(home: Home, night: str, latest: Latest) -> None:
    try:
        status = read_status(home, night)
        if status.verdict:
            latest.status, latest.time = status, (run_dir(home, night) / LINEAGE).stat().st_mtime
        elif status.error:
            latest.failed += 1
    except (ClawpipeError, OSError):
        return
