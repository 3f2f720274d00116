"""How long an overloaded server asks to wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from clawpipe.core.basics.retry_after import LONGEST_WAIT, asked_to_wait


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 1.5 "}, 1.5),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "86400"}, LONGEST_WAIT),
        ({"Retry-After": "9", "Retry-After-Ms": "250"}, 0.25),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}, LONGEST_WAIT),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Wed, 21 Oct 99999999999999999999 07:28:00 GMT"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "\u00b2"}, None),
        ({}, None),
    ],
)
def test_seconds_that_a_server_asks_to_wait(headers, seconds):
    assert asked_to_wait(httpx.Headers({name: value.encode("latin-1") for name, value in headers.items()})) == seconds


def test_a_date_is_seconds_from_now():
    later = datetime.now(UTC) + timedelta(seconds=30)
    assert asked_to_wait({"retry-after": format_datetime(later, usegmt=True)}) == pytest.approx(30, abs=5)
