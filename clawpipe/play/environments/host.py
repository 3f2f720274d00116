"""The process in which a user's environment runs: `python -m clawpipe.play.environments.host`, see `environments.hosted`.

It makes the environment once, and forks a process for each episode, so that a deadline can be kept: an episode that hangs is
killed, with whatever it has started, and the others go on.

Standard input is a socket, the control: first a line with the environment's name and options, which is answered with a line; then
orders of five bytes, a letter and a number: "e", begin an episode, whose own socket is passed along; "k", end the episode of this
process id. When the control ends, so do all episodes and this process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.user_code.extensions import in_one_line
from clawpipe.errors import ClawpipeError, ConfigError
from clawpipe.play.environments.base import Environment
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.episode_server import EpisodeServer
from clawpipe.play.environments.process_tree import become_subreaper, children, end_with_parent

ORDER = struct.Struct("<cI")
EPISODE, KILL = b"e", b"k"


class Host:
    """Forks episodes of one environment, and ends them with their children."""

    def __init__(self, environment: Environment, control: socket.socket) -> None:
        self._environment, self._control = environment, control
        self._episodes: set[int] = set()
        self._known = children()  # what the environment itself has started
        self._woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    def run(self) -> None:
        """Follow orders until the control ends."""
        try:
            while self._obeyed(select.select([self._control, self._woken], [], [])[0]):
                self._reap()
        finally:
            self._end_all()

    def _obeyed(self, ready: Sequence[object]) -> bool:
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._control not in ready:
            return True
        order, passed, *_ = socket.recv_fds(self._control, ORDER.size, 1)
        if len(order) < ORDER.size:
            return False
        letter, number = ORDER.unpack(order)
        if letter == EPISODE:
            os.set_inheritable(passed[0], False)
            self._fork(socket.socket(fileno=passed[0]))
        elif number in self._episodes:
            _kill(number)
        return True

    def _fork(self, connection: socket.socket) -> None:
        host = os.getpid()
        child = os.fork()
        if not child:
            self._become_episode(connection, host)
        connection.close()
        self._episodes.add(child)

    def _become_episode(self, connection: socket.socket, host: int) -> NoReturn:
        """Serve one episode in this new process, and end it."""
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            end_with_parent()
            become_subreaper()
            self._control.close()
            if os.getppid() == host:
                EpisodeServer(self._environment, connection).run()
        finally:
            os._exit(0)

    def _reap(self) -> None:
        """Take note of episodes that have ended, and kill what they left: their orphans are this process's children now."""
        ended = set[int]()
        with suppress(ChildProcessError):
            while child := os.waitpid(-1, os.WNOHANG)[0]:
                ended.add(child)
        self._episodes -= ended
        if ended:
            for stray in children() - self._known - self._episodes:
                _kill(stray)

    def _end_all(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while left := children() | self._episodes:
            for child in left:
                _kill(child)
            with suppress(ChildProcessError):
                self._episodes.discard(os.waitpid(-1, 0)[0])
                continue
            return


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _opened(request: JsonObject) -> tuple[Environment | None, JsonObject]:
    """Return the environment, and what the parent is told of it: what is asked before episodes begin, or why there is none."""
    try:
        environment = load_environment(request["name"], request["options"])
        tools = [{"name": one.name, "description": one.description, "parameters": one.parameters} for one in environment.tools()]
        preamble = [message.as_dict() for message in environment.preamble()]
        return environment, {"name": environment.name, "kind": environment.kind, "tools": tools, "preamble": preamble}
    except ClawpipeError as error:
        return None, {"raised": error.as_dict()}
    except Exception as error:  # of a user's code
        return None, {
            "raised": ConfigError(f"it does not say its tools and preamble: {in_one_line(error)}", request["name"]).as_dict()
        }


def main() -> None:
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # the environment's code has no input
    become_subreaper()
    with control.makefile("rb", buffering=0) as lines:  # without a buffer, which would take orders as well
        request = json.loads(lines.readline())
    environment, told = _opened(request)
    control.sendall(json.dumps(told).encode() + b"\n")
    if environment is not None:
        Host(environment, control).run()


if __name__ == "__main__":
    main()
