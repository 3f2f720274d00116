"""The watcher of `clawpipe up`: it delivers what people are to be told, takes alarms from Prefect, and answers /metrics.

`python -m flows.watch PORT CONFIG [OVERRIDE ...]` with the settings of the scheduled night. It asks for the home's secret.
"""

from __future__ import annotations

import logging
import math
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Literal

import uvicorn
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from clawpipe.config.load import load_config, shipped
from clawpipe.config.night import NightConfig
from clawpipe.monitoring.textfile import write_textfile
from clawpipe.notifications.events import event
from clawpipe.notifications.outbox import Outbox
from clawpipe.ports import LOOPBACK
from clawpipe.processes import quick_exit
from clawpipe.services.secret import home_secret
from clawpipe.services.web import Locked, SameOrigin
from clawpipe.store.home import Home
from flows.alarms import keep_alarms, prepare_alarms
from flows.figures import figures
from flows.notices import conditions, notify

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


class Watcher:
    """Watches one home for the receivers in one night's settings."""

    def __init__(self, home: Home, config: NightConfig) -> None:
        self._home, self._config = home, config
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
                if self._config.notify.receivers:
                    due = time.monotonic() - looked > _CONDITIONS_SECONDS
                    looked = time.monotonic() if due else looked
                    events = conditions(self._home, self._config.registry.model_name) if due else ()
                    notify(self._home, self._config, events, _DELIVERY_SECONDS)
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

    def _write_figures(self) -> None:
        """Write the textfile that the settings name, if there is a newer text."""
        file = self._config.metrics.textfile
        if file and (text := self.figures()) is not self._written:
            write_textfile(file, text)
            self._written = text

    async def _alarm(self, request: Request) -> Response:
        try:
            alarm = Alarm.model_validate_json((await request.body())[:_LARGEST])
        except ValidationError as error:
            return PlainTextResponse(f"no alarm: {error.errors()[0]['msg']}", 422)
        model = self._config.registry.model_name
        told = event(self._home, alarm.kind, alarm.text, about=alarm.about, night=alarm.night, model=model)
        Outbox(self._home).put(told, self._config.notify.receivers)
        return PlainTextResponse("kept", 202)


def main(port: int, config: Path, overrides: list[str]) -> None:
    """Watch until SIGTERM."""
    home, settings = Home.from_env(), load_config(shipped(config), overrides)
    watcher, secret = Watcher(home, settings), home_secret(home)
    if settings.notify.receivers:
        prepare_alarms(f"http://{LOOPBACK}:{port}{ALARM}", secret)
    else:
        keep_alarms({})  # those of earlier settings
    if settings.notify.receivers or settings.metrics.textfile:
        threading.Thread(target=watcher.look_for_ever, daemon=True).start()
    app = SameOrigin(Locked(watcher.app(), secret, open_path=HEALTH))
    uvicorn.run(app, host=LOOPBACK, port=port, log_level="warning", ws="none", server_header=False)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    quick_exit(0)
