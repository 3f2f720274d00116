"""Wait for what comes by itself, as the death of a process that was killed."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(true: Callable[[], bool], seconds: float) -> None:
    """Poll until it is."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"still not so after {seconds:g} s"
        time.sleep(0.02)
