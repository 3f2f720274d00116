"""The config lines by which clients of MCP start `clawpipe mcp`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join, quote

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.serve.agents import hermes, openclaw

NAME = "clawpipe"  # of the server among a client's servers


@dataclass(frozen=True)
class ToolServer:
    """A command that a client starts. Paths are absolute and the home is named: clients start it anywhere, with few variables."""

    command: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    def entry(self) -> JsonObject:
        """Return the server as most clients' configs hold it."""
        return {"command": self.command, "args": [*self.arguments], "env": {**self.variables}}


def tool_server(home: Path, config: Path | None) -> ToolServer:
    """Return the server for a home.

    Args:
        config: settings of a training, unless the agent changes them; None: the shipped ones.
    """
    beside = Path(sys.executable).with_name("clawpipe")
    command = str(beside) if beside.exists() else shutil.which("clawpipe") or "clawpipe"
    given = ("--config", str(config.absolute())) if config else ()
    return ToolServer(command, ("mcp", *given), {"CLAWPIPE_HOME": str(home.absolute())})


def _claude_code(server: ToolServer) -> str:
    variables = "".join(f" -e {quote(f'{name}={value}')}" for name, value in server.variables.items())
    return f"claude mcp add {NAME}{variables} -- {join([server.command, *server.arguments])}\n"


def _plain_json(server: ToolServer) -> str:
    return json.dumps({"mcpServers": {NAME: server.entry()}}, indent=2, ensure_ascii=False) + "\n"


EDITS: Mapping[str, Callable[[str, ToolServer], str]] = {  # of a config's text
    "hermes": lambda text, server: hermes.with_server(text, NAME, server.entry()),
    "openclaw": lambda text, server: openclaw.with_server(text, NAME, server.entry()),
}
_TYPED: Mapping[str, Callable[[ToolServer], str]] = {"claude-code": _claude_code, "json": _plain_json}
CLIENTS = (*EDITS, *_TYPED)


def lines(client: str, server: ToolServer) -> str:
    """Return the lines that a person adds to the client's config, or types in a shell."""
    return EDITS[client]("", server) if client in EDITS else _TYPED[client](server)
