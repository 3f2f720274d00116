"""The server of the fakes of services, and what goes wrong at it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import Any


@dataclass
class Fault:
    """What goes wrong at some requests, counted from 1: `first` to `last`.

    Attributes:
        at: which requests are counted, as the fake says.
        status: answered instead; 0: the connection is closed without an answer; -1: after half of it.
        late: the request is executed before, so that only its answer is lost.
    """

    at: str
    status: int
    first: int = 1
    last: int = 1
    late: bool = False


class Server(ThreadingHTTPServer):
    """Tells nothing of clients that went away."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
