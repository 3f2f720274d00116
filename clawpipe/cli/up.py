"""`clawpipe up`: run the long-lived services in the foreground."""

from __future__ import annotations

import shlex
import signal
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from clawpipe.services.stack import Stack
    from clawpipe.store.home import Home

_PREFECT_PORT, _MLFLOW_PORT = 4200, 5000

PrefectPort = Annotated[int | None, typer.Option(help=f"Port of the Prefect server; {_PREFECT_PORT}, or any if that is taken.")]
MlflowPort = Annotated[int | None, typer.Option(help=f"Port of the MLflow server; {_MLFLOW_PORT}, or any if that is taken.")]


def up(prefect_port: PrefectPort = None, mlflow_port: MlflowPort = None) -> None:
    """Run the Prefect server, the MLflow server and a worker on loopback until Ctrl-C, and deploy the nightly schedule.

    While it runs, `clawpipe run` on the same home reports to this Prefect server.
    """
    from clawpipe.services.stack import choose_port, stack
    from clawpipe.store.home import Home

    home = Home.from_env()
    ports = choose_port(prefect_port, _PREFECT_PORT), choose_port(mlflow_port, _MLFLOW_PORT)
    signal.signal(signal.SIGTERM, _interrupt)  # a supervisor's stop then ends the services in order, like Ctrl-C
    try:
        with stack(home, *ports, say=typer.echo) as services:
            typer.echo(_addresses(services, home))
            services.watch()
    except KeyboardInterrupt:
        typer.echo("stopped")


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _addresses(services: Stack, home: Home) -> str:
    from clawpipe.services.secret import secret_file

    api, secret = services.api_url, secret_file(home)
    return f"""
Prefect   {api.removesuffix("/api")}  its pages ask for the secret
MLflow    {services.mlflow_url}  asks for user and password: the secret's parts before and after the colon
Secret    {secret}
Worker    pool "clawpipe", this machine
Logs      {services.services[0].log.parent}
Home      {home.root}

A night through the worker, from another terminal:
  export PREFECT_API_URL={api} PREFECT_API_AUTH_STRING="$(cat {shlex.quote(str(secret))})"
  prefect deployment run nightly-retrain/nightly --watch
  prefect deployment run nightly-retrain/nightly -p config=configs/demo.yaml --watch

Ctrl-C stops everything."""
