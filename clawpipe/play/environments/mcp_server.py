"""Call the tools of an MCP server: a command that is started and used over its pipes, or a running server at a URL."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from anyio.from_thread import start_blocking_portal

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.schemas import check_parameters
from clawpipe.core.conversation.messages import ToolSpec
from clawpipe.data.wire.texts import joined_texts
from clawpipe.errors import BusyError, ClawpipeError, ConfigError

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

_log = logging.getLogger(__name__)
_START_SECONDS = 60  # that a server may take to begin
_LOGGED = 300  # characters of a server's standard error that are quoted


class McpServer:
    """A connection to an MCP server; several threads may use it. A command ends with `close`.

    Args:
        server: a command line, or a URL that begins with http.
        timeout_s: seconds that a call may take.
        max_characters: longest text of a result; the rest is cut off.

    Attributes:
        tools: the server's tools, in its order.
        only_reads: whether it says of each tool that calls change nothing.
        has_ended: whether a call found that the connection is closed.

    Raises:
        ConfigError: the command cannot be started or is no MCP server, or a tool has no valid schema, or `mcp` is not installed.
        BusyError: nothing answers at the URL.
    """

    def __init__(self, server: str, timeout_s: float, max_characters: int) -> None:
        self._timeout, self._most = timeout_s, max_characters
        self.has_ended = False
        self._stack = ExitStack()
        try:
            self._portal = self._stack.enter_context(start_blocking_portal())
            self._client = self._connected(server)
            listed = self._listed()
            self.tools = [_tool(tool, server) for tool in listed]
        except BaseException:
            self._stack.close()
            raise
        self.only_reads = all(tool.annotations is not None and tool.annotations.read_only_hint is True for tool in listed)

    def call(self, name: str, arguments: JsonObject) -> str:
        """Return the text of a call's result; of a call that failed, or took too long, a text that begins with "error: "."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        try:
            result = self._portal.call(self._client.call_tool, name, arguments, self._timeout)
        except MCPError as error:
            self.has_ended = error.code == CONNECTION_CLOSED
            return f"error: {error}"
        text = _text(result)
        cut = text if len(text) <= self._most else f"{text[: self._most]}\n[{len(text) - self._most} more characters]"
        return f"error: {cut}" if result.is_error else cut

    def close(self) -> None:
        try:
            self._stack.close()
        except ExceptionGroup as error:  # the connection broke before, and this says why
            _log.debug("an MCP connection ended with %r", error)

    def _connected(self, server: str) -> Client:
        try:
            from mcp import Client, StdioServerParameters
            from mcp.client.stdio import stdio_client
        except ImportError:
            raise ConfigError(
                "MCP servers need the package mcp", server, "pip install 'clawpipe[mcp]' -c constraints.txt"
            ) from None
        log = self._stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))  # noqa: SIM115
        transport = server if server.startswith("http") else stdio_client(_command(server, StdioServerParameters), log)
        client = Client(transport, read_timeout_seconds=_START_SECONDS)
        try:
            return self._stack.enter_context(self._portal.wrap_async_context_manager(client))
        except (OSError, ExceptionGroup) as error:
            raise _start_error(error, server, log) from None

    def _listed(self) -> list[Any]:
        """Return every page of the server's list of tools."""
        page = self._portal.call(self._client.list_tools)
        found = list(page.tools)
        while page.next_cursor:
            cursor = page.next_cursor
            page = self._portal.call(lambda cursor=cursor: self._client.list_tools(cursor=cursor))
            found += page.tools
        return found


def _command(server: str, parameters: Any) -> Any:
    try:
        program, *arguments = shlex.split(server)
    except ValueError as error:
        raise ConfigError(f"no command line: {error}", server) from None
    # `python` is the one that has the SDK, also where a worker or a unit runs clawpipe without its environment being activated
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return parameters(command=program, args=arguments, env={"PATH": path})


def _start_error(error: OSError | ExceptionGroup[Any], server: str, log: TextIO) -> ClawpipeError:
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if server.startswith("http"):
        return BusyError(f"no MCP server answers: {cause}", server, "start it, and try again")
    log.seek(0)
    output = log.read()[-_LOGGED:].strip()
    return ConfigError(
        f"no MCP server starts: {cause}{f'; it said: {output}' if output else ''}", server, "try the command by itself"
    )


def _tool(tool: Any, server: str) -> ToolSpec:
    try:
        check_parameters(tool.input_schema)
    except ValueError as error:
        raise ConfigError(f"the schema of its tool {tool.name!r} is not valid: {error}", server) from None
    return ToolSpec(tool.name, tool.description or "", tool.input_schema)


def _text(result: CallToolResult) -> str:
    """Return the text of a result; a part that is none is named by its kind."""
    return joined_texts("tool", [part.text if part.type == "text" else f"[{part.type}]" for part in result.content])
