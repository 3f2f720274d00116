"""Wait for what comes by itself: the death of a process that was killed, or the answer of a busy server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx


def wait_until(true: Callable[[], bool], seconds: float) -> None:
    """Poll until it is."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"still not so after {seconds:g} s"
        time.sleep(0.02)


def answered(client: httpx.Client, method: str, url: str, **more: Any) -> Any:
    """What a server says, once it is not too busy: after 503 Prefect's own client asks again, too."""
    answer = client.request(method, url, **more)
    while answer.status_code == 503:
        time.sleep(float(answer.headers.get("Retry-After", 1)))
        answer = client.request(method, url, **more)
    return answer.raise_for_status().json() if answer.content else None
