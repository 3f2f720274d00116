"""`clawpipe up`: run the long-lived services in the foreground."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from clawpipe.cli.config import OverrideOption
from clawpipe.core.basics.json_types import JsonObject

if TYPE_CHECKING:
    from clawpipe.core.config.night import NightConfig
    from clawpipe.core.services.stack import Stack
    from clawpipe.core.store.home import Home

_PREFECT_PORT, _MLFLOW_PORT, _METRICS_PORT = 4200, 5000, 9464
_TELL_SECONDS = 5.0
_SCHEDULE_SECONDS = 30.0  # about five are usual

PrefectPort = Annotated[int | None, typer.Option(help=f"Port of the Prefect server; {_PREFECT_PORT}, or any if that is taken.")]
MlflowPort = Annotated[int | None, typer.Option(help=f"Port of the MLflow server; {_MLFLOW_PORT}, or any if that is taken.")]
MetricsPort = Annotated[int | None, typer.Option(help=f"Port of /metrics; {_METRICS_PORT}, or any if that is taken.")]
ConfigOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--config", "-c", help="YAML file of a scheduled night's settings, once for each model; configs/nightly.yaml if left out."
    ),
]
AtOnceOption = Annotated[int, typer.Option(min=1, help="Nights that run at a time, of several models; the others wait their turn.")]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        metavar="CRON", help='When nights start, in the time zone of their settings, e.g. "30 3 * * *"; 02:00 if left out.'
    ),
]
ReadyAt = Annotated[
    int | None, typer.Option(min=1, help="Conversations and pairs that start a night before its hour; 200 if left out.")
]


def up(
    config: ConfigOption = None,
    override: OverrideOption = [],  # noqa: B006
    ready_at: ReadyAt = None,
    schedule: ScheduleOption = None,
    at_once: AtOnceOption = 1,
    prefect_port: PrefectPort = None,
    mlflow_port: MlflowPort = None,
    metrics_port: MetricsPort = None,
) -> None:
    """Run the Prefect server, the MLflow server, a worker and a watcher on loopback until Ctrl-C, and deploy the nightly schedule.

    The watcher tells those in the settings' `notify` what happens, and answers /metrics.

    --config names your own night, which must have a label of its own each night (`night: "{date}"`). Where it learns from data that
    no night has used, enough new data start it before its hour, too. With several configs each model has its own nights, which wait
    for no other model's lock. While this command runs, `clawpipe run` on the same home reports to this Prefect server.
    """
    from clawpipe.core.services.stack import choose_port, stack
    from clawpipe.core.store.home import Home
    from clawpipe.errors import BusyError
    from clawpipe.record.notifications.outbox import leave
    from clawpipe.serve.monitoring.textfile import require_place
    from flows.deployments import belonging_to, deployments

    deployed = deployments(config or [], override, ready_at, schedule)  # a mistake shows before anything starts
    home, settings = Home.from_env(), _nightly_settings(deployed)
    for file in {one.metrics.textfile for one in settings}:
        if file:
            require_place(home, file)
    metrics = choose_port(metrics_port, _METRICS_PORT)
    ports = choose_port(prefect_port, _PREFECT_PORT), choose_port(mlflow_port, _MLFLOW_PORT), metrics
    failing = partial(leave, home, "service.failing")
    signal.signal(signal.SIGTERM, _interrupt)  # a supervisor's stop then ends the services in order, like Ctrl-C
    try:
        with stack(home, *ports, belonging_to(home, deployed), at_once, typer.echo, failing) as services:
            typer.echo(_addresses(services, home, deployed, metrics))
            try:
                services.watch()
            except BusyError as error:
                failing(error.what.partition(";")[0])  # without the end of its log, which may hold anything
                _tell(home, settings)
                raise
    except KeyboardInterrupt:
        typer.echo("stopped")


def _next_runs(services: Stack, home: Home) -> str:
    """Return when the deployments run next, as the server says; a server that schedules nothing is told at once."""
    from clawpipe.core.services.schedules import await_schedule, scheduler_error

    found = await_schedule(home, services.api_url, _SCHEDULE_SECONDS)
    lines = [f"Schedule  {one}" for one in found]
    if not all(one.next_run for one in found):
        log = services.services[0].log
        lines.append(f"Schedule  the Prefect server schedules nothing: {scheduler_error(log) or f'see {log}'}")
    return "\n".join(lines)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _nightly_settings(deployed: JsonObject) -> list[NightConfig]:
    from clawpipe.core.config.load import load_config, shipped
    from flows.deployments import scheduled

    return [load_config(shipped(Path(night["config"])), night["overrides"]) for night in scheduled(deployed)]


def _tell(home: Home, settings: Sequence[NightConfig]) -> None:
    """Deliver what waits before the end, but for Prefect's blocks, which the next `up` can load again."""
    from sqlite3 import Error

    from clawpipe.record.notifications.deliver import deliver
    from clawpipe.record.notifications.outbox import Outbox

    with suppress(OSError, Error):  # the error that ends `up` says more
        outbox = Outbox(home)
        outbox.address(list(dict.fromkeys(receiver for one in settings for receiver in one.notify.receivers)))
        deliver(outbox, _TELL_SECONDS)


def _addresses(services: Stack, home: Home, deployed: JsonObject, metrics: int) -> str:
    from clawpipe.core.services.secret import secret_file
    from flows.deployments import scheduled

    nights = "\n".join(f"Nightly   {_words(night)}" for night in scheduled(deployed))
    name = next(one["name"] for one in deployed["deployments"] if one["schedules"])
    api, secret = services.api_url, secret_file(home)
    return f"""
Prefect   {api.removesuffix("/api")}  its pages ask for the secret
MLflow    {services.mlflow_url}  asks for user and password: the secret's parts before and after the colon
Metrics   http://127.0.0.1:{metrics}/metrics  as for MLflow
Nights    {services.mlflow_url}/nights/  one page over all of them; asks for the same
Secret    {secret}
Pages     `clawpipe open` shows them, signed in
Worker    pool "clawpipe", this machine
{nights}
{_next_runs(services, home)}
Logs      {services.services[0].log.parent}
Home      {home.root}

A night through the worker, from another terminal:
  export PREFECT_API_URL={api} PREFECT_API_AUTH_STRING="$(cat {shlex.quote(str(secret))})"
  prefect deployment run nightly-retrain/{name} --watch
  prefect deployment run nightly-retrain/{name} -p config=configs/demo.yaml --watch

Ctrl-C stops everything."""


def _words(night: JsonObject) -> str:
    return shlex.join([night["config"], *(word for setting in night["overrides"] for word in ("-o", setting))])
