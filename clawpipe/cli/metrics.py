"""`clawpipe metrics`: figures of nights for Prometheus, and the dashboard that draws them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def metrics(
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Print the Grafana dashboard instead, as JSON for Dashboards > Import.")
    ] = False,
) -> None:
    """Print the figures of this home's nights in Prometheus' text format, as `clawpipe up` answers at /metrics.

    Of each model: last success, verdict, held-out success, age of the champion, evidence left, rows waiting, and what each stage
    of the last night with a verdict took. A figure that is not known is absent.
    """
    sys.stdout.write(_dashboard() if dashboard else _figures())


def _dashboard() -> str:
    from importlib.resources import files

    return (files("clawpipe.serve.monitoring") / "grafana.json").read_text(encoding="utf-8")


def _figures() -> str:
    from clawpipe.core.store.home import Home
    from flows.figures import figures

    return figures(Home.from_env()).decode()
