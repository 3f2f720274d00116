"""Run a server under a guard process, with a log and a health check, and end it."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from clawpipe.core.system import processes
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError, from_exit_code

LOG_BYTES = 20_000_000  # of a log before it is begun anew
_POLL_SECONDS = 0.1
_TAIL_LINES = 15
_ANSWER_SECONDS = 10.0
_SAYS, _HELPS = "\nclawpipe: ", "\n  -> "  # before what a command ends with


@dataclass(frozen=True)
class Service:
    """A running child process with its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    begun: int = 0  # bytes of the log that others had written before

    def ended(self) -> int | None:
        """Return the exit code, or None while the service runs."""
        return self.process.poll()

    def tail(self) -> str:
        """Return the last lines that it wrote into the log."""
        written = self.log.read_bytes()
        own = written[self.begun if self.begun <= len(written) else 0 :]  # a log may have been begun anew
        return "\n".join(own.decode(errors="replace").splitlines()[-_TAIL_LINES:])

    def wait_healthy(self, url: str, timeout: float) -> None:
        """Return when `url` answers 200.

        Raises:
            ConfigError, DataError: the service is clawpipe and ended for such an error, which is told in its words.
            BusyError: it ended for another reason, or `timeout` seconds passed; the message holds the end of its log.
        """
        deadline = time.monotonic() + timeout
        while not answers(url):
            if (code := self.ended()) is not None:
                raise self._own_error(code) or self._failure(f"{self.name} ended with code {code} while it started")
            if time.monotonic() > deadline:
                raise self._failure(f"{self.name} did not answer within {timeout:.0f} s")
            time.sleep(_POLL_SECONDS)

    def _own_error(self, code: int) -> ClawpipeError | None:
        """Return the error that a clawpipe command ended with; None where trying again may help."""
        _, found, said = f"\n{self.tail()}".rpartition(_SAYS)
        if not found or code not in (ConfigError.exit_code, DataError.exit_code):
            return None
        what, _, fix = said.partition(_HELPS)
        return from_exit_code(code, what.strip(), fix=fix.strip())

    def _failure(self, what: str) -> BusyError:
        return BusyError(f"{what}; the end of its log:\n{self.tail()}", str(self.log), _remedy(self.tail()))


def started(name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> Service:
    """Start `command`, which appends its output to `log`; see `running`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        begun = sink.tell()
        process = processes.spawn(command, env={**os.environ, **env}, stdout=sink, stderr=subprocess.STDOUT)
    return Service(name, process, log, begun)


@contextmanager
def running(name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> Iterator[Service]:
    """Run `command` for the length of the block, append its output to `log`, and end it with all its children.

    `env` is added to this process's environment.
    """
    service = started(name, command, log, env)
    try:
        yield service
    finally:
        processes.stop(service.process)


def rotate(logs: Path, limit: int = LOG_BYTES) -> None:
    """Begin each log of a directory anew that is larger than `limit` bytes, and keep the old lines beside it, in `NAME.log.1`.

    The file stays the same one, since servers have it open to append; lines that are written in this moment may be lost.
    """
    for log in logs.glob("*.log"):
        with suppress(OSError):  # a full disk, or another process was faster
            if log.stat().st_size > limit:
                shutil.copyfile(log, log.with_name(f"{log.name}.1"))
                os.truncate(log, 0)


def answers(url: str, within: float = 2.0) -> bool:
    """Return whether a GET of `url` is answered with 200 within some seconds."""
    try:
        with urllib.request.urlopen(url, timeout=within) as reply:
            return reply.status == 200
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError):
        return False


def require_answer(api: str, what: str, fix: str) -> None:
    """Raise at once if a configured address does not answer, where a library would retry for long. Any reply counts.

    Raises:
        BusyError: there is no answer.
    """
    parts = urlsplit(api)
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"  # without the password
    try:
        urllib.request.urlopen(f"{where}/health", timeout=_ANSWER_SECONDS).close()
    except urllib.error.HTTPError:
        pass
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BusyError(f"{what} does not answer: {getattr(error, 'reason', error)}", where, fix) from None


def _remedy(log: str) -> str:
    if "min_items" in log:
        return "this fastapi is too new for Prefect's server: pip install 'fastapi<0.151'"
    if "Failed to find app 'clawpipe'" in log:
        return "clawpipe was installed before this version: pip install -e . -c constraints.txt"
    return "`clawpipe doctor` checks what the server needs; then try again"
