"""How long an overloaded HTTP server asks to wait before the next try."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_WAIT = 60.0  # seconds between two tries, whatever a server asks for
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")


def asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an overloaded server asks to wait, at most `LONGEST_WAIT`; None if it names none.

    `Retry-After` is a number of seconds or a date (RFC 9110, section 10.2.3); `retry-after-ms`, which OpenAI's servers send beside
    it, is more exact.

    Args:
        headers: an answer's, with names in lower case or of any case.
    """
    exact, asked = headers.get("retry-after-ms", "").strip(), headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(exact):
        return min(float(exact) / 1000, LONGEST_WAIT)
    if _SECONDS.fullmatch(asked):
        return min(float(asked), LONGEST_WAIT)
    try:
        until = parsedate_to_datetime(asked)
    except (ValueError, OverflowError):  # of a year with twenty digits
        return None
    left = (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(left, 0.0), LONGEST_WAIT)
