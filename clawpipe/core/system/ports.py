"""Ports of servers on loopback."""

from __future__ import annotations

import secrets
import socket

LOOPBACK = "127.0.0.1"
_FIRST, _COUNT = 20_000, 12_000


def free_port() -> int:
    """Return a loopback port that was free a moment ago.

    It lies below the ports that systems give to outgoing connections (from 32768 on), which may take it before a server starts.
    """
    while not is_free(port := _FIRST + secrets.randbelow(_COUNT)):
        pass
    return port


def is_free(port: int) -> bool:
    """Return whether a server could listen on the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like servers: a port in TIME_WAIT counts as free
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
