"""Count the gateway's events for Prometheus, and raise alarms that follow from the counts."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from clawpipe.data.capture.alarms import ALARMS, DERIVED, RECENT, Alarm, alarms
from clawpipe.serve.gateway.attribution import Attribution
from clawpipe.serve.gateway.recorder import Commit

log = logging.getLogger("clawpipe.gateway")


class _Recent(NamedTuple):
    """What alarms depend on."""

    turn_type: str
    session_from: str
    no_tokens: str | None


class Metrics:
    """The counters of one gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "clawpipe_gateway_requests", "Requests by route and status.", ["route", "status"], registry=self.registry
        )
        self.turns = Counter(
            "clawpipe_gateway_turns", "Captured turns.", ["turn_type", "session_from", "tokens"], registry=self.registry
        )
        self.uncaptured = Counter(
            "clawpipe_gateway_uncaptured", "Answers that were not captured.", ["reason"], registry=self.registry
        )
        self.untaught = Counter(
            "clawpipe_gateway_untaught", "Captured turns that are never trained on.", ["reason"], registry=self.registry
        )
        self.feedback = Counter("clawpipe_gateway_feedback", "Captured feedback on turns.", registry=self.registry)
        self.refused = Counter(
            "clawpipe_gateway_tokens_refused", "Requests that were answered only without tokens.", registry=self.registry
        )
        self.running = Gauge("clawpipe_gateway_running", "Requests that are being answered.", registry=self.registry)
        self.seconds = Histogram("clawpipe_gateway_seconds", "Seconds of a chat completion.", registry=self.registry)
        self._group = Histogram(
            "clawpipe_gateway_group_records",
            "Records that one write took.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
            registry=self.registry,
        )
        self._redacting = Counter("clawpipe_gateway_redacting_seconds", "Seconds of redaction.", registry=self.registry)
        self._writing = Counter("clawpipe_gateway_writing_seconds", "Seconds of writing and syncing.", registry=self.registry)
        self._written = Counter("clawpipe_gateway_written_bytes", "Bytes of captured records.", registry=self.registry)
        self._alarm = Gauge("clawpipe_gateway_alarm", "1 while something is wrong.", ["alarm"], registry=self.registry)
        for name in ALARMS:
            self._alarm.labels(name).set(0)
        self._recent: deque[_Recent] = deque(maxlen=RECENT)
        self._sounding: set[Alarm] = set()

    def group(self, commit: Commit) -> None:
        """Count one write of the recorder."""
        self._group.observe(commit.records)
        self._redacting.inc(commit.redacting)
        self._writing.inc(commit.writing)
        self._written.inc(commit.bytes)

    def turn(self, whose: Attribution, no_tokens: str | None, faults: Iterable[str] = ()) -> None:
        """Count a captured turn and why it will not teach, and sound or end the alarms.

        Args:
            no_tokens: why it has no tokens; None if it has.
        """
        for fault in faults:
            self.untaught.labels(fault).inc()
        source = DERIVED if whose.session_from == DERIVED else "client"
        self.turns.labels(whose.turn_type, source, "none" if no_tokens else "recorded").inc()
        self._recent.append(_Recent(whose.turn_type, whose.session_from, no_tokens))
        now: set[Alarm] = {*alarms(tuple(self._recent))}
        for name in now ^ self._sounding:
            self._alarm.labels(name).set(int(name in now))
        for name in now - self._sounding:
            log.warning(ALARMS[name])
        self._sounding = now

    def text(self) -> bytes:
        """Return all counts in Prometheus' text format."""
        return generate_latest(self.registry)
