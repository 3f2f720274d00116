"""Download from signed addresses, which go into no message."""

from __future__ import annotations

import httpx

_TRIES = 5


def bytes_at(url: str, timeout: float) -> bytes:
    """Return what is at an address, after a few tries.

    Raises:
        httpx.TransportError: it does not come whole; the message is without the address.
    """
    with httpx.Client(timeout=timeout, follow_redirects=True) as client:
        for left in reversed(range(_TRIES)):
            try:
                return client.get(url).raise_for_status().content
            except httpx.HTTPError as error:
                if not left:
                    raise httpx.TransportError(f"a download ended with {type(error).__name__}") from None
    raise AssertionError
