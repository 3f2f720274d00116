"""`clawpipe connect`: point an agent at the gateway."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.json_types import JsonObject


class AgentName(StrEnum):
    """An agent whose config clawpipe knows, or anything else that takes OpenAI's variables."""

    openclaw = "openclaw"
    hermes = "hermes"
    monoclaw = "monoclaw"
    openai = "openai"


AgentArgument = Annotated[AgentName, typer.Argument(help="openai is any agent that takes OpenAI's environment variables.")]
UrlOption = Annotated[str, typer.Option(metavar="URL", help="The gateway's base URL.")]
ModelOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The model to ask for; with --write, the only one that the engine lists.")
]
WriteFlag = Annotated[bool, typer.Option("--write", help="Change the agent's own config file, and keep the old one beside it.")]


def connect(
    agent: AgentArgument,
    url: UrlOption = "http://127.0.0.1:8100/v1",
    model: ModelOption = None,
    write: WriteFlag = False,
    json_output: JsonFlag = False,
) -> None:
    """Print the lines of an agent's own config that make it ask the gateway; with --write, put them there.

    The printed lines hold YOUR-KEY in place of a key; `clawpipe keys make NAME` makes one. --write takes the key in
    $CLAWPIPE_API_KEY, asks the gateway for one short answer first, and changes nothing if that fails.
    """
    from clawpipe.agents.connection import base_url

    report = _written(agent, base_url(url), model) if write else _shown(agent, base_url(url), model)
    if json_output:
        print_json(report)
    elif write:
        typer.echo(_sentence(report))
    else:
        typer.echo((f"in {report['file']}:\n\n" if report["file"] else "") + str(report["lines"]), nl=False)
    if report["plugin"] and not json_output:
        typer.echo(f"the plugin that also says whose turn each request is: {report['plugin']}", err=True)


def _shown(agent: str, url: str, model: str | None) -> JsonObject:
    from clawpipe.agents.connection import Connection
    from clawpipe.agents.known import FILES, lines

    shown = lines(agent, Connection(url, model or "MODEL", "YOUR-KEY"))
    file = str(FILES[agent].find(os.environ)) if agent in FILES else None
    return {"agent": agent, "file": file, "lines": shown, "plugin": _plugin(agent)}


def _written(agent: str, url: str, model: str | None) -> JsonObject:
    from clawpipe.agents.connection import KEY_VARIABLE, check_connection
    from clawpipe.agents.known import check_writable, write
    from clawpipe.errors import ConfigError

    check_writable(agent)  # before the engine works for nothing
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key:
        raise ConfigError("no key is set", KEY_VARIABLE, f'export {KEY_VARIABLE}="$(clawpipe keys make {agent})"')
    written = write(agent, check_connection(url, model, key))
    backup = written.backup and str(written.backup)
    return {"agent": agent, "file": str(written.file), "changed": written.changed, "backup": backup, "plugin": _plugin(agent)}


def _plugin(agent: str) -> str | None:
    """Return the folder of an agent's plugin, which clawpipe ships; None if there is none."""
    from clawpipe.config.load import shipped_file

    found = shipped_file(f"integrations/{agent}")
    return str(found.resolve()) if found else None


def _sentence(report: JsonObject) -> str:
    if not report["changed"]:
        return f"{report['file']} says so already"
    before = f"; what it held before is in {report['backup']}" if report["backup"] else ""
    return f"the gateway has answered; {report['file']} is written{before}"
