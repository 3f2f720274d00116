"""`clawpipe prefect`: prepare your Prefect server for nights."""

from __future__ import annotations

import os

import typer

from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.core.basics.masking import without_secrets
from clawpipe.errors import ConfigError

app = typer.Typer(help="Your Prefect server.", no_args_is_help=True)


@app.callback()
def _group() -> None: ...  # so that `init` stays a word of the command line


@app.command()
def init(json_output: JsonFlag = False) -> None:
    """Prepare the Prefect server that PREFECT_API_URL or the active profile names for nights.

    It makes the work pool `clawpipe`, the concurrency limit `gpu`, and an automation that marks silent nights as crashed. Existing
    ones stay as they are; nothing else on the server is touched. A second run changes nothing.
    """
    from clawpipe.cli.night import flow_log
    from clawpipe.core.services.prefect_server import announced_url, configured_url, environment, prefect_api
    from clawpipe.core.store.home import Home

    home = Home.from_env()
    if not (configured_url() or announced_url(home)):
        raise ConfigError(
            "no Prefect server is named", "PREFECT_API_URL", "export PREFECT_API_URL=http://HOST:4200/api, then do it again"
        )
    with prefect_api(home) as api:
        os.environ.update(environment(home, api, flow_log(home)))
        from flows.bootstrap import prepare_services

        made = prepare_services(fresh_server=False)
    if json_output:
        print_json({"server": without_secrets(api.url), "made": made})
        return
    typer.echo(f"Prefect server {without_secrets(api.url)}")
    for name, new in made.items():
        typer.echo(f"  {name}: {'made' if new else 'exists'}")
