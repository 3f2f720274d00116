"""Tools from a JSON file that are functions of the user's: they run in a process of their own, each call with a deadline.

[{"name": "add", "description": "...", "parameters": {...}, "path": "tools.py:add"}]
"""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.system import processes
from clawpipe.core.user_code.extensions import file_of
from clawpipe.errors import ConfigError, error_from
from clawpipe.play.environments.calling import CallTimeoutError, EndedError
from clawpipe.play.environments.interpreter import bootstrap
from clawpipe.play.environments.socket_lines import Lines
from clawpipe.play.environments.tool_files import load_tools

_TO_START = 60.0  # seconds
_FIX = 'write "path": "tools.py:NAME" beside name, description and parameters'


def is_tool_file(server: str) -> bool:
    """Whether what runs tools is a JSON file of functions, and no command, which may end with such a file, or URL."""
    if not server.endswith(".json") or server.startswith("http"):
        return False
    return len(server.split()) == 1 or Path(server).expanduser().is_file()


def functions_in(file: Path) -> dict[str, str]:
    """Return where the function of each tool of a file is, `/path/to/file.py:NAME` or `module:NAME`.

    Raises:
        NotFoundError, ConfigError: see `load_tools`; or a tool has no function.
    """
    tools = load_tools(file)
    entries = [_entry(entry) for entry in json.loads(file.read_bytes())]
    found = {tool.name: _path(entry) for tool, entry in zip(tools, entries, strict=True)}
    if missing := [name for name, path in found.items() if ":" not in path]:
        raise ConfigError(f"the tool {missing[0]!r} has no function", str(file), _FIX)
    return {name: _beside(file, path) for name, path in found.items()}


def names_functions(file: Path) -> bool:
    """Whether the tools of a file are functions, and not only offered.

    Raises:
        NotFoundError, ConfigError: see `load_tools`.
    """
    load_tools(file)
    given = json.loads(file.read_bytes())
    return isinstance(given, list) and any(_path(_entry(entry)) for entry in given)


def files_of_tools(file: Path) -> list[Path]:
    """Return the Python files whose functions a file of tools names; none of a file that is no such file."""
    try:
        return sorted({place for path in functions_in(file).values() if (place := file_of(path)) and place.is_file()})
    except ConfigError:
        return []


def _entry(entry: JsonObject) -> JsonObject:
    """Return an entry's fields, wherever they stand: OpenAI's form has them one level below."""
    inner = entry.get("function")
    return inner | entry if isinstance(inner, dict) else entry


def _path(entry: JsonObject) -> str:
    named = (entry.get(field) for field in ("path", "function_path", "function"))
    return next((path for path in named if isinstance(path, str)), "")


def _beside(file: Path, path: str) -> str:
    """Return a path that does not depend on the current directory: it is relative to the file of tools."""
    place, _, name = path.rpartition(":")
    is_file = place.endswith(".py") or "/" in place
    return f"{(file.parent / Path(place).expanduser()).resolve()}:{name}" if is_file else path


class FunctionServer:
    """Runs the functions of a file of tools, as `McpServer` runs those of a server.

    Args:
        file: see this module.
        timeout_s: seconds that a call may take.
        max_characters: longest text of a result; the rest is cut off.

    Attributes:
        tools: in the file's order.
        only_reads: False: nothing says that the functions change nothing.
        has_ended: whether the process was ended by a call.

    Raises:
        NotFoundError, ConfigError: see `functions_in`; or a function's file is not there or does not import.
    """

    only_reads = False

    def __init__(self, file: Path, timeout_s: float, max_characters: int) -> None:
        self._timeout, self._most = timeout_s, max_characters
        self.tools = load_tools(file)
        self.has_ended = False
        self._process, self._lines = _started(functions_in(file), str(file))

    def call(self, name: str, arguments: JsonObject) -> str:
        """Return the text of a result; of a call that raised, took too long or ended the process one that begins with "error: "."""
        try:
            self._lines.write({"name": name, "arguments": arguments}, self._timeout)
            text: str = self._lines.read(self._timeout)["text"]
        except (CallTimeoutError, EndedError) as error:
            self.has_ended = True
            return f"error: {error}"
        return text if len(text) <= self._most else f"{text[: self._most]}\n[{len(text) - self._most} more characters]"

    def close(self) -> None:
        """End the process, and whatever its functions have started."""
        self._lines.close()
        processes.stop(self._process)


def _started(functions: dict[str, str], file: str) -> tuple[subprocess.Popen[Any], Lines]:
    command, variables = bootstrap(None, "clawpipe.play.environments.function_server")
    connection, theirs = socket.socketpair()
    with theirs:
        process = processes.spawn(command, env=variables, stdin=theirs.fileno(), stdout=2)  # what functions print is for the log
    lines = Lines(connection)
    try:
        lines.write({"functions": functions}, _TO_START)
        told = lines.read(_TO_START)
    except (CallTimeoutError, EndedError) as error:
        told = {"raised": ConfigError(f"its functions cannot be loaded: {error}", file, "import them with python first").as_dict()}
    if "raised" in told:
        lines.close()
        processes.stop(process)
        raise error_from(told["raised"])
    return process, lines
