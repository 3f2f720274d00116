"""`clawpipe mcp`: let an agent train itself by tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clawpipe.cli.config import OverrideOption
from clawpipe.cli.environments import FoldersOption
from clawpipe.cli.night import ConfigOption

_CONFIG = Path("configs/nightly.yaml")


def mcp(
    config: ConfigOption = _CONFIG,
    override: OverrideOption = [],  # noqa: B006  (typer copies it)
    folders: FoldersOption = [],  # noqa: B006
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIRECTORY", help="Let the agent inspect and ingest files below it."),
    ] = None,
    test_model: Annotated[
        list[str],
        typer.Option(
            "--test-model",
            metavar="NAME[@URL][=VARIABLE]",
            help="A model that rl_test_inference may try; the key of an endpoint is in the environment variable. Repeatable.",
        ),
    ] = [],  # noqa: B006
    status_minutes: Annotated[float, typer.Option(min=0, help="Minutes between two looks at one running training.")] = 30.0,
    http: Annotated[
        int | None,
        typer.Option("--http", metavar="PORT", min=0, max=65535, help="Serve HTTP on this loopback port instead of pipes."),
    ] = None,
) -> None:
    """Serve tools over MCP by which an agent starts, watches and stops its own training.

    The config says what a training is unless the agent changes it. An agent may change numbers, switches and choices of how a night
    learns; texts, the held-out items, the gate and the registry are locked. Clients start this command and use its pipes; with
    --http they send the home's secret ($CLAWPIPE_HOME/secret) as a bearer token to http://127.0.0.1:PORT/mcp.
    """
    from clawpipe.core.config import load_config
    from clawpipe.core.store.home import Home
    from clawpipe.start.mcp.desk import Desk
    from clawpipe.start.mcp.trying import require_distinct

    _require_package()
    _require_directory(data)
    load_config(config, override)  # a mistake shows before a client waits
    require_distinct(test_model)
    desk = Desk(Home.from_env(), config, override, folders, status_minutes * 60, data, test_model)
    desk.environments()
    if http is None:
        from clawpipe.start.mcp.server import serve_pipes

        serve_pipes(desk)
        return
    from clawpipe.core.system.ports import LOOPBACK
    from clawpipe.serve.serving.access import listen
    from clawpipe.start.mcp.server import PATH, serve_http

    listener = listen(LOOPBACK, http)
    typer.echo(f"tools at http://{LOOPBACK}:{listener.getsockname()[1]}{PATH}, for clients with the secret of {desk.home.root}")
    serve_http(desk, listener)


def _require_package() -> None:
    from importlib.util import find_spec

    from clawpipe.errors import ConfigError

    if find_spec("mcp") is None:
        raise ConfigError("the package `mcp` is not installed", "clawpipe mcp", "pip install 'clawpipe[mcp]'")


def _require_directory(data: Path | None) -> None:
    from clawpipe.errors import NotFoundError

    if data is not None and not data.is_dir():
        raise NotFoundError("no such directory", str(data), "give --data a directory of logs")
