"""The way out of a sandbox that has no network: a socket in a folder that it can see, and inside a port that leads there."""

from __future__ import annotations

from collections.abc import Sequence

from clawpipe.errors import ConfigError
from clawpipe.play.environments.agent import Program
from clawpipe.play.sandbox.base import Sandbox

APART = ("bubblewrap", "container")  # have a network of their own alone
# Inside: listen at the port, hand each connection on to the socket, and run the program beside it.
_FORWARD = """
import os, socket, subprocess, sys, threading
path, port, argv = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
listener = socket.create_server(("127.0.0.1", port), backlog=256)
def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    finally:
        try:
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass
def serve():
    while True:
        client = listener.accept()[0]
        engine = socket.socket(socket.AF_UNIX)
        engine.connect(path)
        for pair in ((client, engine), (engine, client)):
            threading.Thread(target=copy, args=pair, daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
try:
    code = subprocess.call(argv)
except OSError as error:
    print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
    code = 127
sys.stdout.flush()
sys.stderr.flush()
os._exit(code if code >= 0 else 128 - code)
"""


def bridged(sandbox: Sandbox, program: Program, argv: Sequence[str], port: int, path: str) -> list[str]:
    """Return the command of a program: in a sandbox without this machine's network with a way to the endpoint beside it.

    Args:
        port: of the endpoint; inside it is the same.
        path: of the socket at which the endpoint listens as well.

    Raises:
        ConfigError: the sandbox has no Python.
    """
    if program.sandbox not in APART:
        return list(argv)
    python = sandbox.exec("command -v /usr/bin/python3 || command -v python3").stdout.decode().strip()
    if not python:
        where = program.sandbox_options.get("image", program.sandbox)
        what = "it has no python3, by which a program without a network reaches what it asks"
        raise ConfigError(what, f"sandbox: {where}", "put python3 into it, or choose another sandbox")
    return [python, "-c", _FORWARD, path, str(port), *argv]
