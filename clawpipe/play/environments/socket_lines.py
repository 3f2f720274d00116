"""JSON objects on a socket, one a line, each with a deadline."""

from __future__ import annotations

import json
import socket
import time
from typing import NoReturn

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.play.environments.calling import CallTimeoutError, EndedError

_LONGEST = 64 << 20  # bytes of an answer
_CHUNK = 1 << 16


class Lines:
    """JSON objects on a socket, one a line."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._rest = connection, bytearray()
        self.ended = False

    def write(self, value: JsonObject, seconds: float) -> None:
        self._connection.settimeout(seconds)
        try:
            self._connection.sendall(json.dumps(value).encode() + b"\n")
        except TimeoutError:
            _late(seconds)
        except OSError:
            self._end()

    def read(self, seconds: float, end: float | None = None) -> JsonObject:
        """Return the next object.

        Args:
            seconds: that it may take, from now on or until `end`, a time of the monotonic clock.

        Raises:
            CallTimeoutError: it takes longer.
            EndedError: the other side has ended, or says too much.
        """
        end = end or time.monotonic() + seconds
        while b"\n" not in self._rest:
            self._connection.settimeout(max(end - time.monotonic(), 1e-3))
            try:
                chunk = self._connection.recv(_CHUNK)
            except TimeoutError:
                _late(seconds)
            except OSError:
                chunk = b""
            if not chunk:
                self._end()
            self._rest += chunk
            if len(self._rest) > _LONGEST:
                self.ended = True
                raise EndedError(f"it answered with more than {_LONGEST >> 20} MiB")
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        self._connection.close()

    def _end(self) -> NoReturn:
        self.ended = True
        raise EndedError("its process has ended")


def _late(seconds: float) -> NoReturn:
    raise CallTimeoutError(f"it took more than {seconds:g} s") from None
