"""Deliver the outbox's events: webhooks by HTTP, and mail and others through Apprise, each receiver in a thread of its own.

A receiver's address may hold a secret. So it is read from the environment at the last moment, libraries that log addresses are not
used for it, and no error holds it.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any
from urllib.parse import urlsplit

from clawpipe.errors import BusyError, ClawpipeError, ConfigError
from clawpipe.record.notifications.events import Event
from clawpipe.record.notifications.outbox import Outbox

_ANSWER_SECONDS = 5.0
Send = Callable[[str, Event], None]  # the receiver's place and the event; raises if the receiver did not take it


def deliver(outbox: Outbox, seconds: float, more: Mapping[str, Send] | None = None) -> None:
    """Deliver what is due, for at most `seconds`; what a receiver does not take is kept and tried again later.

    Args:
        more: how to send to other kinds of receivers.
    """
    sends = {"webhook": post, "apprise": send_text, **(more or {})}
    deadline = time.monotonic() + seconds
    threads = [
        threading.Thread(target=copy_context().run, args=(_deliver_to, outbox, receiver, sends, deadline), daemon=True)
        for receiver in outbox.receivers()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _deliver_to(outbox: Outbox, receiver: str, sends: Mapping[str, Send], deadline: float) -> None:
    """Send a receiver what is due, in order, until it does not take one."""
    kind, _, place = receiver.partition(" ")
    while time.monotonic() < deadline and kind in sends and (delivery := outbox.claim(receiver)):
        try:
            sends[kind](place, delivery.event)
        except Exception as error:  # whatever a library raises, a receiver that is away must harm nothing
            outbox.failed(delivery, error.what if isinstance(error, ClawpipeError) else type(error).__name__)
            return
        outbox.delivered(delivery)


def post(place: str, event: Event) -> None:
    """POST the event as JSON. Any answer of 200 to 299 within 5 seconds means that the receiver has it.

    Raises:
        ConfigError: there is no such address.
        BusyError: no such answer.
    """
    url = _resolved(place)
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError("the address does not begin with http:// or https://", place)
    headers = {"content-type": "application/json", "user-agent": "clawpipe", "idempotency-key": event.id}
    request = urllib.request.Request(url, event.model_dump_json().encode(), headers, method="POST")
    try:
        _OPENER.open(request, timeout=_ANSWER_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        raise BusyError(f"the receiver answered {error.code}", place) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BusyError(f"the receiver does not answer: {type(error).__name__}", place) from None


def send_text(place: str, event: Event) -> None:
    """Send the event as text to an Apprise URL, such as mailto://.

    Raises:
        ConfigError: there is no such address.
        BusyError: it was not taken.
    """
    import apprise

    client = apprise.Apprise()
    if not client.add(_resolved(place)):
        raise ConfigError("Apprise does not know this kind of address", place)
    if not client.notify(title=event.subject, body=event.body):
        raise BusyError("the receiver did not take the message", place)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET without the event."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _resolved(place: str) -> str:
    """Return the address: a place `$NAME` stands in the environment."""
    if not place.startswith("$"):
        return place
    url = os.environ.get(place[1:])
    if not url:
        raise ConfigError("the environment variable is not set", place)
    return url
