"""The watcher of `clawpipe up`: it delivers what people are to be told, takes alarms from Prefect, and answers /metrics.

`python -m flows.watch PORT CONFIG ... [-- OVERRIDE ...]` with the settings of the scheduled nights. It asks for the home's secret.
"""

from __future__ import annotations

import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import uvicorn
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from clawpipe.core.config.load import load_config, shipped
from clawpipe.core.config.night import NightConfig
from clawpipe.core.services.secret import home_secret
from clawpipe.core.services.web import Locked, SameOrigin
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import LOOPBACK
from clawpipe.core.system.processes import quick_exit
from clawpipe.record.nights.files import model_of
from clawpipe.record.notifications.events import event
from clawpipe.record.notifications.outbox import Outbox
from clawpipe.serve.monitoring.textfile import write_textfile
from flows.alarms import keep_alarms, prepare_alarms
from flows.figures import figures
from flows.notices import conditions, conditions_of_home, notify

ALARM, HEALTH, METRICS = "/alarm", "/health", "/metrics"
_LOOK_SECONDS = 2.0
_CONDITIONS_SECONDS = 300.0
_DELIVERY_SECONDS = 30.0
_FIGURES_SECONDS = 60.0  # for which figures are new enough
_LARGEST = 64 << 10  # bytes of an alarm
_LOG = logging.getLogger(__name__)


class Alarm(BaseModel):
    """What an automation sends, see flows.alarms."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["night.overdue", "night.crashed"]
    text: str
    about: str
    night: str | None = None
    model: str | None = None


class Watcher:
    """Watches one home for the receivers in the settings of its nights."""

    def __init__(self, home: Home, configs: Sequence[NightConfig]) -> None:
        self._home, self._configs = home, configs
        self._everybody = list(dict.fromkeys(receiver for config in configs for receiver in config.notify.receivers))
        self._figures, self._drawn = b"", -math.inf
        self._written: bytes | None = None
        self._drawing = threading.Lock()

    def app(self) -> Starlette:
        """Return the web application: POST /alarm, GET /metrics, GET /health."""
        return Starlette(
            routes=[
                Route(ALARM, self._alarm, methods=["POST"]),
                Route(METRICS, lambda _: Response(self.figures(), media_type=CONTENT_TYPE_PLAIN_0_0_4)),
                Route(HEALTH, lambda _: PlainTextResponse("ok")),
            ]
        )

    def look_for_ever(self) -> None:
        """Deliver every few seconds, and look at the home every few minutes. An error is a line in the log."""
        looked = -math.inf
        while True:
            try:
                due = time.monotonic() - looked > _CONDITIONS_SECONDS
                looked = time.monotonic() if due else looked
                self._tell_everybody(due)
                for config in self._configs:
                    self._notify(config, due)
                self._write_figures()
            except Exception as error:
                _LOG.warning("%s: %s", type(error).__name__, error)
            time.sleep(_LOOK_SECONDS)

    def figures(self) -> bytes:
        """Return the figures of the home, at most a minute old."""
        with self._drawing:
            if time.monotonic() - self._drawn > _FIGURES_SECONDS:
                self._figures, self._drawn = figures(self._home), time.monotonic()
            return self._figures

    def _tell_everybody(self, due: bool) -> None:
        """Address what no model's settings have: what is wrong with the home, and what processes without settings have put."""
        if self._everybody:
            outbox = Outbox(self._home)
            for one in conditions_of_home(self._home) if due else ():
                outbox.put(one)
            outbox.address(self._everybody)

    def _notify(self, config: NightConfig, due: bool) -> None:
        if config.notify.receivers:
            events = conditions(self._home, config.registry.model_name) if due else ()
            notify(self._home, config, events, _DELIVERY_SECONDS)

    def _write_figures(self) -> None:
        """Write the textfiles that the settings name, if there is a newer text."""
        files = {file for config in self._configs if (file := config.metrics.textfile)}
        if files and (text := self.figures()) is not self._written:
            for file in files:
                write_textfile(file, text)
            self._written = text

    async def _alarm(self, request: Request) -> Response:
        try:
            alarm = Alarm.model_validate_json((await request.body())[:_LARGEST])
        except ValidationError as error:
            return PlainTextResponse(f"no alarm: {error.errors()[0]['msg']}", 422)
        for config in self._about(alarm):
            model = config.registry.model_name
            told = event(self._home, alarm.kind, alarm.text, about=alarm.about, night=alarm.night, model=model)
            Outbox(self._home).put(told, config.notify.receivers)
        return PlainTextResponse("kept", 202)

    def _about(self, alarm: Alarm) -> Sequence[NightConfig]:
        """Return the settings of the night that an alarm is about; the first where nothing says which."""
        model = alarm.model or (alarm.night and model_of(self._home, alarm.night))
        return [config for config in self._configs if config.registry.model_name == model] or self._configs[:1]


def main(port: int, configs: list[Path], overrides: list[str]) -> None:
    """Watch until SIGTERM."""
    home, settings = Home.from_env(), [load_config(shipped(config), overrides) for config in configs]
    watcher, secret = Watcher(home, settings), home_secret(home)
    has_receivers = any(one.notify.receivers for one in settings)
    if has_receivers:
        prepare_alarms(f"http://{LOOPBACK}:{port}{ALARM}", secret)
    else:
        keep_alarms({})  # those of earlier settings
    if has_receivers or any(one.metrics.textfile for one in settings):
        threading.Thread(target=watcher.look_for_ever, daemon=True).start()
    app = SameOrigin(Locked(watcher.app(), secret, open_path=HEALTH))
    uvicorn.run(app, host=LOOPBACK, port=port, log_level="warning", ws="none", server_header=False)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    main(int(sys.argv[1]), list(map(Path, sys.argv[2:split])), sys.argv[split + 1 :])
    quick_exit(0)
