"""Tell people how nights went: `told` stands around a night, `conditions` looks at the home, and `notify` tells and delivers.

Nothing here fails a night: what goes wrong is a line in the log.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.files import InUseError
from clawpipe.core.store.home import Home
from clawpipe.core.system.machine import as_clawpipe_error
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, StoppedError
from clawpipe.record.nights.files import night_id
from clawpipe.record.nights.status import read_status
from clawpipe.record.notifications.deliver import deliver
from clawpipe.record.notifications.events import Event, event
from clawpipe.record.notifications.nights import events_of_verdict, failure
from clawpipe.record.notifications.outbox import Outbox
from clawpipe.record.registry.promotions import Move, history
from clawpipe.record.registry.tracking import Tracking
from clawpipe.start.doctor.checks import check_captured, check_disk
from flows.datasets import NothingNewError

AFTER_A_NIGHT = 5.0  # most seconds that deliveries take at the end of a night; what is left is delivered later
_RECENT = datetime.timedelta(days=2)  # an older move of the alias is no news
_LOG = logging.getLogger(__name__)


@contextmanager
def told(config: NightConfig) -> Iterator[None]:
    """Tell how the night in this block ended, when it has ended; it must have let its home go by then."""
    night = night_id(config)
    try:
        yield
    except (StoppedError, InUseError, NothingNewError):  # it has not failed
        raise
    except Exception as error:
        line = str(as_clawpipe_error(error) or f"unexpected {type(error).__name__}: {error}")
        _tell(config, lambda home: [failure(home, night, config.registry.model_name, line)])
        raise
    else:
        _tell(config, lambda home: _of_night(home, config, night))


def notify(home: Home, config: NightConfig, events: Iterable[Event], seconds: float) -> None:
    """Put new events into the outbox for the receivers, as those of other processes, and deliver for at most `seconds`."""
    outbox, receivers = Outbox(home), config.notify.receivers
    for one in events:
        outbox.put(one, receivers)
    outbox.address(receivers)
    outbox.prune()
    deliver(outbox, seconds, {"block": send_to_block})


def conditions(home: Home, model: str) -> Iterator[Event]:
    """Yield what is wrong with the home itself, and moves of the alias to an older version."""
    yield from conditions_of_home(home)
    for move in _back(home, model):
        text = f"version {move.to_version} is in service again, in place of {move.from_version}: {move.reason} ({move.who})"
        yield event(home, "version.went_back", text, about=move.id, model=model)


def conditions_of_home(home: Home) -> Iterator[Event]:
    """Yield what is wrong with the home itself, once a day: disk, gateway."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    if (disk := check_disk(home)).state != "ok":
        yield event(home, "disk.low", f"{disk.found}: {disk.fix}", about=today)
    if (captured := check_captured(home)).state != "ok":
        yield event(home, "capture.failing", captured.found, about=today)


def send_to_block(name: str, told: Event) -> None:
    """Send an event to a Prefect notification block, e.g. `slack-webhook/ops`.

    Raises:
        ConfigError: there is no such block, or it is of another kind.
        BusyError: it was not taken. Prefect's own message is left out, for it may hold the address.
    """
    try:
        block = Block.load(name)
    except ValueError:
        raise ConfigError("Prefect has no such block", name, "`prefect block ls` lists them") from None
    if not isinstance(block, NotificationBlock):
        raise ConfigError("this block sends no notifications", name)
    try:
        cast(Any, block).notify(told.body, subject=told.subject)  # declared as a coroutine, too, which it is in an event loop
    except Exception as error:
        raise BusyError(f"the block could not send: {type(error).__name__}", name) from None


def _tell(config: NightConfig, events: Callable[[Home], Iterable[Event]]) -> None:
    if not config.notify.receivers:
        return
    try:
        home = Home.from_env()
        notify(home, config, [*events(home), *conditions(home, config.registry.model_name)], AFTER_A_NIGHT)
    except Exception as error:
        _LOG.warning("how the night went could not be told: %s: %s", type(error).__name__, error)


def _of_night(home: Home, config: NightConfig, night: str) -> list[Event]:
    """Return the events of a verdict; none of a night that found nothing to do."""
    with suppress(ClawpipeError):
        status = read_status(home, night)
        if status.verdict:
            return list(events_of_verdict(home, status, config.registry.model_name, config.notify.in_a_row))
    return []


def _back(home: Home, model: str) -> Iterator[Move]:
    """Yield the recent moves of the alias to an older version."""
    tracking = Tracking.of(home, model)
    since = datetime.datetime.now(datetime.UTC) - _RECENT
    for move in history(tracking):
        older = move.action == "rollback" or (move.action == "promote" and _number(move.to_version) < _number(move.from_version))
        if older and datetime.datetime.fromisoformat(move.time) > since:
            yield move


def _number(version: str | None) -> int:
    return int(version) if version and version.isdigit() else 0
