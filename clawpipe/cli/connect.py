"""`clawpipe connect`: point an agent at the gateway, or at the tools by which it trains itself."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.core.basics.json_types import JsonObject


class AgentName(StrEnum):
    """An agent whose config clawpipe knows, or anything else that takes OpenAI's variables."""

    openclaw = "openclaw"
    hermes = "hermes"
    monoclaw = "monoclaw"
    openai = "openai"
    claude_code = "claude-code"
    json = "json"


AgentArgument = Annotated[
    AgentName,
    typer.Argument(
        help="openai: any agent that takes OpenAI's variables. claude-code and json, which is any client: for --training-tools."
    ),
]
TrainingToolsFlag = Annotated[
    bool, typer.Option("--training-tools", help="Connect the agent with the tools of `clawpipe mcp`, not with the gateway.")
]
TrainingOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="With --training-tools: what a training is, unless the agent changes it."),
]
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
    training_tools: TrainingToolsFlag = False,
    config: TrainingOption = None,
    json_output: JsonFlag = False,
) -> None:
    """Print the lines of an agent's own config that make it ask the gateway; with --write, put them there.

    With --training-tools the lines make it start `clawpipe mcp` for this home: tools by which an agent trains itself.

    The printed lines hold YOUR-KEY in place of a key; `clawpipe keys make NAME` makes one. --write takes the key in
    $CLAWPIPE_API_KEY, asks the gateway for one short answer first, and changes nothing if that fails.
    """
    from clawpipe.serve.agents.connection import base_url

    if training_tools:
        report = _tools(agent, config, write)
    else:
        report = _written(agent, base_url(url), model) if write else _shown(agent, base_url(url), model)
    if json_output:
        print_json(report)
    elif write:
        typer.echo(_sentence(report, training_tools))
    else:
        typer.echo((f"in {report['file']}:\n\n" if report["file"] else "") + str(report["lines"]), nl=False)
    if report["plugin"] and not json_output:
        typer.echo(f"the plugin that also says whose turn each request is: {report['plugin']}", err=True)


def _shown(agent: str, url: str, model: str | None) -> JsonObject:
    from clawpipe.serve.agents.connection import Connection
    from clawpipe.serve.agents.known import FILES, check_known, lines

    check_known(agent)
    shown = lines(agent, Connection(url, model or "MODEL", "YOUR-KEY"))
    file = str(FILES[agent].find(os.environ)) if agent in FILES else None
    return {"agent": agent, "file": file, "lines": shown, "plugin": _plugin(agent)}


def _written(agent: str, url: str, model: str | None) -> JsonObject:
    from clawpipe.errors import ConfigError
    from clawpipe.serve.agents.connection import KEY_VARIABLE, check_connection
    from clawpipe.serve.agents.known import check_writable, write

    check_writable(agent)  # before the engine works for nothing
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key:
        raise ConfigError("no key is set", KEY_VARIABLE, f'export {KEY_VARIABLE}="$(clawpipe keys make {agent})"')
    written = write(agent, check_connection(url, model, key))
    backup = written.backup and str(written.backup)
    return {"agent": agent, "file": str(written.file), "changed": written.changed, "backup": backup, "plugin": _plugin(agent)}


def _tools(agent: str, config: Path | None, write: bool) -> JsonObject:
    from clawpipe.core.config import load_config
    from clawpipe.core.store.home import Home
    from clawpipe.errors import ConfigError
    from clawpipe.serve.agents.known import FILES, edit
    from clawpipe.serve.agents.tool_server import CLIENTS, EDITS, lines, tool_server

    if agent not in CLIENTS:
        raise ConfigError("clawpipe knows no MCP config of this agent", agent, f"take one of {', '.join(CLIENTS)}")
    if config:
        load_config(config, [])  # a mistake shows now, and not when the client starts the server
    server = tool_server(Home.from_env().root, config)
    told: JsonObject = {"agent": agent, "file": None, "plugin": None}
    if not write:
        file = str(FILES[agent].find(os.environ)) if agent in FILES else None
        return told | {"file": file, "lines": lines(agent, server)}
    if agent not in EDITS:
        fix = f"use what `clawpipe connect {agent} --training-tools` prints, without --write"
        raise ConfigError("clawpipe knows no config file of this client", agent, fix)
    written = edit(agent, lambda text: EDITS[agent](text, server))
    return told | {"file": str(written.file), "changed": written.changed, "backup": written.backup and str(written.backup)}


def _plugin(agent: str) -> str | None:
    """Return the folder of an agent's plugin, which clawpipe ships; None if there is none."""
    from clawpipe.core.config.load import shipped_file

    found = shipped_file(f"integrations/{agent}")
    return str(found.resolve()) if found else None


def _sentence(report: JsonObject, tools: bool) -> str:
    if not report["changed"]:
        return f"{report['file']} says so already"
    before = f"; what it held before is in {report['backup']}" if report["backup"] else ""
    return f"{'' if tools else 'the gateway has answered; '}{report['file']} is written{before}"
