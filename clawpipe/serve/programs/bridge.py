"""The way out of a sandbox that has no network: a socket in a folder that it can see, and inside a port that leads there."""

from __future__ import annotations

from collections.abc import Sequence

from clawpipe.errors import ConfigError
from clawpipe.play.environments.world import APART, Site

# Inside: listen at the port, hand each connection on to the socket, and run the program beside it. All in one thread: those of a
# sandbox are few, and they are the program's.
_FORWARD = """
import asyncio, logging, os, sys
path, port, argv = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
logging.disable()
async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    try:
        writer.write_eof()
    except OSError:
        pass
async def serve(reader, writer):
    try:
        answers, engine = await asyncio.open_unix_connection(path)
    except OSError:
        return writer.close()
    await asyncio.gather(copy(reader, engine), copy(answers, writer))
    engine.close()
    writer.close()
async def main():
    await asyncio.start_server(serve, "127.0.0.1", port, backlog=256)
    program = await asyncio.create_subprocess_exec(*argv)
    return await program.wait()
try:
    code = asyncio.run(main())
except OSError as error:
    print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
    code = 127
sys.stdout.flush()
sys.stderr.flush()
os._exit(code if code >= 0 else 128 - code)
"""


def bridged(site: Site, argv: Sequence[str], port: int, path: str) -> list[str]:
    """Return the command of a program: in a sandbox without this machine's network with a way to the endpoint beside it.

    Args:
        port: of the endpoint; inside it is the same.
        path: of the socket at which the endpoint listens as well.

    Raises:
        ConfigError: the sandbox has no Python.
    """
    if site.provider not in APART:
        return list(argv)
    python = site.sandbox.exec("command -v /usr/bin/python3 || command -v python3").stdout.decode().strip()
    if not python:
        what = "it has no python3, by which a program without a network reaches what it asks"
        raise ConfigError(what, f"sandbox: {site.provider}", "put python3 into it, or choose another sandbox")
    return [python, "-c", _FORWARD, path, str(port), *argv]
