"""Run one command to its end: feed it, read what it writes, and notice the limit that it exceeds."""

from __future__ import annotations

import os
import re
import selectors
import shlex
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from clawpipe.errors import ConfigError
from clawpipe.play.sandbox.base import WORK, Excess, Limits, Result

UMASK = 0o022  # of commands: which bits their files have is not for the process that starts them to say
LOOK_SECONDS = 0.1  # how often memory and files are looked at
_CHUNK = 1 << 16
_DEFAULTS = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": WORK, "LANG": "C.UTF-8"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Programs(ABC):
    """A sandbox whose commands are child processes of this one.

    Args:
        limits: what it may use.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def exec(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes = b"",
        seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        output_bytes: int | None = None,
    ) -> Result:
        limits = self._limits
        seconds = limits.seconds if seconds is None else seconds
        if self._gone():
            return Result(None, b"", b"", "died")
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        process = self._enter(argv, env, seconds)
        reader = _Reader(process, seconds, limits.output_bytes if output_bytes is None else output_bytes, self._excess)
        if ended := reader.run(stdin):
            self.end_processes()
            process.kill()
        code = process.wait()
        close_pipes(process)
        if not ended and code != 0 and self._gone():
            ended = "died"
        stdout, stderr = map(bytes, reader.outputs.values())
        return Result(None if ended else _as_signal(code), stdout, stderr, ended)

    @abstractmethod
    def end_processes(self) -> None: ...

    @abstractmethod
    def _gone(self) -> bool:
        """Whether the sandbox has been closed or has died."""

    @abstractmethod
    def _enter(self, argv: list[str], env: Mapping[str, str] | None, seconds: float) -> subprocess.Popen[bytes]:
        """Start a command inside, with pipes for its three streams."""

    @abstractmethod
    def _excess(self, process: subprocess.Popen[bytes]) -> Excess | None:
        """Return the limit that the sandbox, in which a command runs, exceeds now."""


def _as_signal(code: int) -> int:
    """A program that starts another tells the signal that ended it as a shell does."""
    return -(code - 128) if code > 128 and code - 128 in set(signal.Signals) else code


class _Reader:
    """Reads the outputs of a process until it ends or exceeds a limit."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        seconds: float,
        output_bytes: int,
        excess: Callable[[subprocess.Popen[bytes]], Excess | None],
    ) -> None:
        self.outputs = {process.stdout: bytearray(), process.stderr: bytearray()}
        self._process, self._excess = process, excess
        self._deadline, self._left = time.monotonic() + seconds, output_bytes
        self._next_look = time.monotonic() + LOOK_SECONDS

    def run(self, stdin: bytes) -> Excess | None:
        """Return the limit that was exceeded; None when the command has ended by itself. Its children may hold the pipes."""
        ended = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(ended, selectors.EVENT_READ)
                self._register(selector, stdin)
                return self._watch(selector, ended)
        finally:
            os.close(ended)

    def _register(self, selector: selectors.BaseSelector, stdin: bytes) -> None:
        for pipe in (*self.outputs, self._process.stdin):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        for pipe in self.outputs:
            selector.register(pipe, selectors.EVENT_READ, self._read)  # type: ignore[arg-type]
        unsent = memoryview(stdin)

        def feed(pipe: IO[bytes]) -> bool:
            nonlocal unsent
            with suppress(BlockingIOError):
                unsent = unsent[os.write(pipe.fileno(), unsent[:_CHUNK]) :] if unsent else unsent
            return bool(unsent)

        selector.register(self._process.stdin, selectors.EVENT_WRITE, feed)  # type: ignore[arg-type]

    def _watch(self, selector: selectors.BaseSelector, ended: int) -> Excess | None:
        while True:
            events = selector.select(LOOK_SECONDS)
            for key, _ in events:
                if key.data is not None and not _goes_on(key.data, key.fileobj):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
            if exceeded := self._exceeded():
                return exceeded
            if any(key.fd == ended for key, _ in events):
                return self._drain()

    def _exceeded(self) -> Excess | None:
        if self._left < 0:
            return "output"
        now = time.monotonic()
        if now > self._deadline:
            return "timeout"
        if now < self._next_look:
            return None
        self._next_look = now + LOOK_SECONDS
        return self._excess(self._process)

    def _read(self, pipe: IO[bytes]) -> bool:
        with suppress(BlockingIOError):
            data = os.read(pipe.fileno(), _CHUNK)
            self.outputs[pipe] += data[: max(self._left, 0)]
            self._left -= len(data)
            return bool(data)
        return True

    def _drain(self) -> Excess | None:
        """Read what an ended command has left in its pipes, and no more than what fits into them: its children may write on."""
        for pipe in self.outputs:
            with suppress(BlockingIOError, ValueError):  # empty; closed
                for _ in range(16):  # a pipe holds 64 KiB, or up to 1 MiB where its writer has asked for it
                    if not (data := os.read(pipe.fileno(), _CHUNK)):  # type: ignore[union-attr]
                        break
                    self.outputs[pipe] += data[: max(self._left, 0)]
                    self._left -= len(data)
        return "output" if self._left < 0 else None


def _goes_on(handle: Callable[..., bool], pipe: object) -> bool:
    try:
        return handle(pipe)
    except BrokenPipeError:
        return False


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close this side of a command's pipes."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def variables(env: Mapping[str, str] | None, where: str = "env") -> dict[str, str]:
    """Return the environment of a command.

    Args:
        where: the variables are set, for an error.

    Raises:
        ConfigError: a name is no variable's, or a value holds a NUL.
    """
    for name, value in (env or {}).items():
        if not _VARIABLE.fullmatch(str(name)) or "\0" in value:
            what, fix = "no variable of an environment", "use letters, digits and _; no NUL in the value"
            raise ConfigError(what, f"{where}: {name!r}", fix)
    return _DEFAULTS | dict(env or {})


def exports(env: Mapping[str, str]) -> bytes:
    """Return a script for `sh` that sets variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items()).encode(errors="surrogateescape")


def memory_file(data: bytes) -> int:
    """Return a descriptor of a file in memory, to be read from its start."""
    descriptor = os.memfd_create("clawpipe")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
