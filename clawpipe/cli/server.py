"""`clawpipe prefect`: a Prefect server of one's own, made ready for nights."""

from __future__ import annotations

import os

import typer

from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.errors import ConfigError

app = typer.Typer(help="A Prefect server of your own.", no_args_is_help=True)


@app.callback()
def _group() -> None: ...  # so that `init` stays a word of the command line


@app.command()
def init(json_output: JsonFlag = False) -> None:
    """Make what nights need on the Prefect server that PREFECT_API_URL, or the active profile, names.

    The work pool `clawpipe`, the concurrency limit `gpu`, and an automation that marks nights crashed that fell silent. What is
    there already stays as it is, whoever made it; nothing else on the server is touched. Doing it again changes nothing.
    """
    from clawpipe.cli.night import flow_log
    from clawpipe.services.prefect_server import announced_url, configured_url, environment, prefect_api
    from clawpipe.store.home import Home

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
        print_json({"server": api.url, "made": made})
        return
    typer.echo(f"Prefect server {api.url}")
    for name, new in made.items():
        typer.echo(f"  {name}: {'made' if new else 'there already'}")
