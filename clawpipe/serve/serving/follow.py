"""Follow an alias: a version that is promoted or rolled back is put in service within seconds, and a bad one goes back by itself.

A new version is loaded beside the old one. Its digest is the registry's; it has to answer a fixed prompt, with the log-probs that a
plain pass of the same model gives; then new sessions get it. The old one stays loaded, so the way back takes no time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol

from clawpipe.errors import BusyError, ClawpipeError
from clawpipe.serve.serving.evidence import LEAST, OF_OTHERS, Answers, Evidence, worse
from clawpipe.serve.serving.versions import V, Version, Versions, is_older

if TYPE_CHECKING:
    from clawpipe.record.registry.promotions import TrialAction
    from clawpipe.serve.serving.served import Served

LOOK_SECONDS = 2.0  # between two looks at the registry
TRIAL_ANSWERS = 50  # of a version on trial, before all new sessions get it

_log = logging.getLogger(__name__)


class Registry(Protocol):
    """The source of versions; `clawpipe.serve.serving.found.Alias` is the implementation."""

    def version(self) -> str: ...

    def find(self, version: str) -> Served: ...

    def go_back(self, version: str, reason: str) -> None: ...

    def log_trial(self, action: TrialAction, version: str, beside: str, reason: str) -> None: ...


class Follower(Generic[V]):
    """Keeps the version in service that an alias names.

    Args:
        versions: what is served.
        registry: what the alias names.
        load: loads a version and tries it out; it raises if the version cannot serve.
        share: of new sessions, that a new version answers until it has given `TRIAL_ANSWERS`; 1: all of them, at once.
        shadow_share: of requests, that it answers before that beside the version in service, until it has given as many; nobody
            sees these answers.
    """

    def __init__(
        self,
        versions: Versions[V],
        registry: Registry,
        load: Callable[[Served], Awaitable[V]],
        share: float = 1.0,
        shadow_share: float = 0.0,
    ) -> None:
        self._versions, self._registry, self._load = versions, registry, load
        self._share, self._shadow_share = share, shadow_share
        self._refused: set[str] = set()  # versions that failed here while the alias names them
        self._retiring: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Call `look` periodically, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except ClawpipeError as error:
                _log.warning("the registry could not be asked: %s", error)
            except Exception:
                _log.exception("following the alias failed")

    async def look(self) -> None:
        """Compare once, and act: go back from a bad version, end a trial, or put the alias's version in service or on trial."""
        await self._go_back_from_a_bad_version()
        await self._judge_the_trial()
        wanted = await asyncio.to_thread(self._registry.version)
        if wanted not in self._refused:
            self._refused.clear()
        trial = self._versions.trial
        if trial and wanted != _number(trial):
            await self._end_trial("the alias names another version")
        if wanted in (_number(self._versions.current), trial and _number(trial), *self._refused):
            return
        known = self._versions.find(wanted)
        if known is None and (live := await self._loaded(wanted)):
            await self._begin(live)
        elif known:
            self.put_in_service(known)

    async def _begin(self, live: V) -> None:
        """Give a version that was just loaded to all new sessions, or to a share of them, or let it answer unseen first.

        The way back is not tried out: whoever rolls back wants the older version now.
        """
        if is_older(live, self._versions.current):
            self.put_in_service(live)
        elif self._shadow_share:
            self._close(self._versions.put_on_trial(live, 0.0, self._shadow_share))
            await self._log_trial("trial", live, f"it answers {self._shadow_share:.0%} of requests, and nobody sees it")
        elif self._share < 1:
            self._close(self._versions.put_on_trial(live, self._share))
            await self._log_share(live)
        else:
            self.put_in_service(live)

    async def _log_share(self, live: V) -> None:
        await self._log_trial("trial", live, f"{self._share:.0%} of new sessions get it")

    def put_in_service(self, live: V) -> None:
        """Give new sessions this version."""
        _log.warning("version %s is in service, in place of %s", _number(live), _number(self._versions.current))
        self._close(self._versions.put_in_service(live))

    def _close(self, versions: Sequence[V]) -> None:
        """Close versions that get no new requests, when their last answers have ended."""
        for retired in versions:
            task = asyncio.create_task(retired.close_when_unused())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    async def close(self) -> None:
        """Close the versions that wait for their last answers."""
        for task in self._retiring:
            task.cancel()
        for task in list(self._retiring):
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _loaded(self, version: str) -> V | None:
        """Load a version and try it; None if it cannot serve."""
        try:
            served = await asyncio.to_thread(self._registry.find, version)
            return await self._load(served)
        except BusyError as error:
            _log.warning("version %s is not loaded yet: %s", version, error)
            return None
        except ClawpipeError as error:
            _log.error("version %s cannot serve, version %s stays: %s", version, _number(self._versions.current), error)
        except Exception:
            _log.exception("version %s cannot serve, version %s stays", version, _number(self._versions.current))
        self._refused.add(version)
        return None

    async def _go_back_from_a_bad_version(self) -> None:
        bad, before = self._versions.current, self._versions.previous
        reason = before and is_worse(bad.evidence, before.evidence)
        if not before or not reason:
            return
        _log.error("version %s goes back to %s: %s", _number(bad), _number(before), reason)
        self.put_in_service(before)
        self._versions.previous = None  # there is no way back to the bad one
        await self._refuse(bad, before, reason)

    async def _judge_the_trial(self) -> None:
        trial, current = self._versions.trial, self._versions.current
        if not trial:
            return
        if reason := is_worse(trial.evidence, current.evidence):
            await self._end_trial(reason)
            await self._refuse(trial, current, reason)
        elif trial.evidence.seen >= TRIAL_ANSWERS:
            await self._log_trial("trial_passed", trial, f"{trial.evidence.seen} answers were no worse than the old version's")
            await self._go_on_after(trial)

    async def _go_on_after(self, trial: V) -> None:
        """Let a version that has passed a trial go on: from unseen answers to a share of new sessions, from there to all."""
        if self._versions.shadow_share and self._share < 1:
            self._versions.show_trial(self._share)
            await self._log_share(trial)
        else:
            self.put_in_service(trial)

    async def _log_trial(self, action: TrialAction, live: V, reason: str) -> None:
        """Write the begin or end of a trial into the promotion log; a log that cannot be written stops no version."""
        beside = _number(self._versions.current)
        _log.warning("version %s on trial beside version %s: %s", _number(live), beside, reason)
        try:
            await asyncio.to_thread(self._registry.log_trial, action, _number(live), beside, reason)
        except ClawpipeError as error:
            _log.error("the trial of version %s is not in the promotion log: %s", _number(live), error)

    async def _end_trial(self, reason: str) -> None:
        ended = self._versions.end_trial()
        self._close(ended)
        for live in ended:
            await self._log_trial("trial_ended", live, reason)

    async def _refuse(self, bad: V, before: V, reason: str) -> None:
        """Take a version back in the registry, too, with the figures."""
        self._refused.add(_number(bad))
        try:
            await asyncio.to_thread(
                self._registry.go_back, _number(bad), f"{reason}; version {_number(before)} was in service before"
            )
        except ClawpipeError as error:
            _log.error("the registry still names version %s: %s", _number(bad), error)


def is_worse(new: Evidence, old: Evidence) -> str:
    """Return the kind of bad answers that the new version gives more often than the old one, in a sentence; "" if there is none.

    Where several keys have asked, it has to hold without any one of them, too. A home's only key decides by its answers, not by
    its ratings.
    """
    found = worse(new.all(), old.all(), LEAST)
    if not found or len(new.keys | old.keys) == 1:
        return found
    holds = (worse(new.all(but=key), _known_without(old, key), OF_OTHERS) for key in new.keys)
    return found if all(holds) else ""


def _known_without(old: Evidence, key: str) -> Answers:
    """Return the old version's counts without a key, unless that key gave nearly all of them."""
    others = old.all(but=key)
    return others if others.total >= OF_OTHERS.answers else old.all()


def _number(live: Version) -> str:
    return live.served.version
