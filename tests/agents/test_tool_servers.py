"""The lines by which clients start the server of tools, and the files that take them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from clawpipe.errors import ConfigError
from clawpipe.serve.agents import hermes, openclaw
from clawpipe.serve.agents.tool_server import CLIENTS, ToolServer, lines, tool_server

SERVER = ToolServer("/opt/clawpipe", ("mcp", "--config", "/home/me/my night.yaml"), {"CLAWPIPE_HOME": "/home/me/.clawpipe"})
ENTRY = {
    "command": "/opt/clawpipe",
    "args": ["mcp", "--config", "/home/me/my night.yaml"],
    "env": {"CLAWPIPE_HOME": "/home/me/.clawpipe"},
}
OTHERS = "plugins:\n  enabled: [x]\nmcp_servers:\n  # mine\n  other:\n    command: ls  # keep\n# tail\nmodel: {default: a}\n"


def test_each_client_is_shown_the_same_server():
    assert yaml.safe_load(lines("hermes", SERVER)) == {"mcp_servers": {"clawpipe": ENTRY}}
    assert json.loads(lines("openclaw", SERVER)) == {"mcp": {"servers": {"clawpipe": ENTRY}}}
    assert json.loads(lines("json", SERVER)) == {"mcpServers": {"clawpipe": ENTRY}}
    assert shlex.split(lines("claude-code", SERVER)) == [
        *("claude", "mcp", "add", "clawpipe", "-e", "CLAWPIPE_HOME=/home/me/.clawpipe", "--", "/opt/clawpipe"),
        *("mcp", "--config", "/home/me/my night.yaml"),
    ]
    assert set(CLIENTS) == {"hermes", "openclaw", "claude-code", "json"}


def test_paths_are_absolute_since_clients_start_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = tool_server(Path("home"), Path("night.yaml"))
    assert Path(server.command).is_absolute()
    assert server.arguments == ("mcp", "--config", str(tmp_path / "night.yaml"))
    assert server.variables == {"CLAWPIPE_HOME": str(tmp_path / "home")}


def test_hermes_other_servers_and_comments_stay():
    after = hermes.with_server(OTHERS, "clawpipe", ENTRY)
    assert yaml.safe_load(after) == yaml.safe_load(OTHERS) | {"mcp_servers": {"other": {"command": "ls"}, "clawpipe": ENTRY}}
    kept = [line for line in after.splitlines() if line in OTHERS.splitlines()]
    assert kept == OTHERS.splitlines()
    assert hermes.with_server(after, "clawpipe", ENTRY) == after


@pytest.mark.parametrize(
    "before",
    [
        "",
        "a: 1",
        "mcp_servers:\n",
        "mcp_servers: {}\nb: 2\n",
        "mcp_servers:\n    other:\n        url: http://x/mcp\n",
        "mcp_servers:\n  clawpipe:\n    command: old\n  other: {command: ls}\nb: 2\n",
        "mcp_servers:\n  other:\n    command: ls",
    ],
)
def test_hermes_takes_the_server_whatever_it_held(before):
    old = yaml.safe_load(before) or {}
    servers = {**(old.get("mcp_servers") or {}), "clawpipe": ENTRY}
    assert yaml.safe_load(hermes.with_server(before, "clawpipe", ENTRY)) == old | {"mcp_servers": servers}


@pytest.mark.parametrize("before", ["mcp_servers: [a]\n", "mcp_servers: {other: {command: ls}}\n", "[1]", "a: ["])
def test_hermes_configs_that_cannot_take_it_are_refused(before):
    with pytest.raises(ConfigError, match="clawpipe connect hermes"):
        hermes.with_server(before, "clawpipe", ENTRY)


def test_openclaw_takes_the_server_beside_others():
    before = json.dumps({"gateway": {"port": 1}, "mcp": {"servers": {"other": {"command": "ls"}}}})
    after = json.loads(openclaw.with_server(before, "clawpipe", ENTRY))
    assert after == {"gateway": {"port": 1}, "mcp": {"servers": {"other": {"command": "ls"}, "clawpipe": ENTRY}}}
    with pytest.raises(ConfigError, match="not plain JSON"):
        openclaw.with_server("// mine\n{}", "clawpipe", ENTRY)
