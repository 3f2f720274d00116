"""The process in which a user's functions run as tools: `python -m clawpipe.play.environments.function_server`.

Standard input is a socket. First comes a line `{"functions": {"add": "/path/to/tools.py:add"}}`, which is answered with `{}` or
with `{"raised": ...}`; then calls, `{"name": "add", "arguments": {...}}`, each answered with `{"text": ...}`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
from collections.abc import Callable
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.user_code.extensions import ExtensionPoint, in_one_line
from clawpipe.errors import ClawpipeError

_FUNCTIONS = ExtensionPoint("function", "function")


def answered(functions: dict[str, Callable[..., Any]], request: JsonObject) -> str:
    """Return what a call returns, as text; of one that raises a text that begins with "error: "."""
    try:
        result = functions[request["name"]](**request["arguments"])
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    except BaseException as error:  # a user's function may exit as well
        return f"error: {in_one_line(error)}"


async def _awaited(result: Any) -> Any:
    return await result


def main() -> None:
    connection = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # functions have no input
    with connection.makefile("rb") as lines:
        try:
            functions = {name: _FUNCTIONS.load(place) for name, place in json.loads(lines.readline())["functions"].items()}
        except ClawpipeError as error:
            connection.sendall(json.dumps({"raised": error.as_dict()}).encode() + b"\n")
            return
        connection.sendall(b"{}\n")
        for line in lines:
            connection.sendall(json.dumps({"text": answered(functions, json.loads(line))}).encode() + b"\n")


if __name__ == "__main__":
    main()
