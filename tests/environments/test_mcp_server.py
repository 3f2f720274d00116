"""Tools of real MCP servers: one that is started, and one that answers at a URL."""

import socket
import sys
import threading

import pytest
import uvicorn
from mcp.server import MCPServer

from clawpipe.core.conversation.messages import ToolSpec
from clawpipe.errors import BusyError, ConfigError
from clawpipe.play.environments.mcp_server import McpServer

CALCULATOR = '''
import os, sys, time
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("calculator")
total = 0
READS = ToolAnnotations(readOnlyHint=True)

@server.tool(annotations=READS)
def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b

if sys.argv[1] == "keeps":
    @server.tool()
    def keep(number: int) -> str:
        """Add to the total."""
        global total
        total += number
        return str(total)

    @server.tool()
    def sleep() -> str:
        time.sleep(600)

    @server.tool()
    def stop() -> str:
        os._exit(3)

    @server.tool()
    def write(letters: int) -> str:
        return "x" * letters

server.run(transport="stdio")
'''


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """command(kind): the command line of a calculator, which keeps a total or only reads."""
    file = tmp_path_factory.mktemp("server") / "a calculator.py"
    file.write_text(CALCULATOR)
    return lambda kind: f"{sys.executable} '{file}' {kind}"


@pytest.fixture
def connect(command):
    """connect(kind, **limits): a server that is stopped after the test."""
    opened = []

    def new(kind="keeps", timeout_s=60.0, max_characters=100):
        opened.append(McpServer(command(kind), timeout_s, max_characters))
        return opened[-1]

    yield new
    for server in opened:
        server.close()


def test_tools_have_the_servers_schemas(connect):
    server = connect("reads")
    [add] = server.tools
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert add == ToolSpec("add", "Add two numbers.", add.parameters)
    assert add.parameters["required"] == ["a"]
    assert add.arguments["b"]["default"] == 0
    assert server.only_reads
    assert not connect("keeps").only_reads


def test_calls_run_in_the_server_whose_state_they_change(connect):
    server = connect()
    assert server.call("add", {"a": 2, "b": 3}) == "5"
    assert [server.call("keep", {"number": 2}) for _ in range(3)] == ["2", "4", "6"]
    assert connect().call("keep", {"number": 1}) == "1"


def test_failures_are_results(connect):
    server = connect()
    assert server.call("add", {"a": "two"}).startswith("error: ")
    assert server.call("subtract", {}).startswith("error: ")
    assert server.call("add", {"a": 1}) == "1"


def test_a_long_result_is_cut(connect):
    assert connect(max_characters=7).call("write", {"letters": 10}) == "xxxxxxx\n[3 more characters]"


def test_a_call_that_takes_too_long_is_an_error(connect):
    server = connect(timeout_s=2)
    assert "timed out" in server.call("sleep", {})
    assert server.call("add", {"a": 1}) == "1"


def test_every_call_to_an_ended_server_is_an_error(connect):
    server = connect()
    for name in ("stop", "add", "add"):
        assert server.call(name, {"a": 1}).startswith("error: ")


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("no-such-program-here", "no-such-program-here"),
        (f"{sys.executable} -c 'raise SystemExit(\"boom\")'", "it said: boom"),
        ("'", "no command line"),
        ("", "no command line"),
    ],
)
def test_what_is_no_server_is_told(server, said):
    with pytest.raises(ConfigError, match=said):
        McpServer(server, 10, 100)


def test_a_server_at_a_url_is_asked():
    there = MCPServer("there")
    there.tool()(double)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(there.streamable_http_app(), log_level="error"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        client = McpServer(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", 60, 100)
        assert [tool.name for tool in client.tools] == ["double"]
        assert client.call("double", {"number": 21}) == "42"
    finally:
        server.should_exit = True
        thread.join()
    assert client.call("double", {"number": 21}).startswith("error: ")
    assert client.has_ended
    client.close()


def double(number: int) -> int:
    return 2 * number


def test_a_url_where_nobody_answers_may_be_tried_again():
    with pytest.raises(BusyError, match="no MCP server answers"):
        McpServer("http://127.0.0.1:9/mcp", 10, 100)
