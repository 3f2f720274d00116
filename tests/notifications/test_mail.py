"""Mail through Apprise, to a real SMTP server on loopback."""

from __future__ import annotations

import email
from email import policy

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Sink

from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import LOOPBACK, free_port
from clawpipe.record.notifications.deliver import deliver
from clawpipe.record.notifications.events import event
from clawpipe.record.notifications.outbox import Outbox


class Kept(Sink):
    """Keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.mails: list[tuple[str, list[str], bytes]] = []

    async def handle_DATA(self, server: object, session: object, envelope: object) -> str:  # noqa: N802
        self.mails.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
        return "250 OK"


def test_an_event_comes_by_mail(home: Home, monkeypatch: pytest.MonkeyPatch):
    kept = Kept()
    server = Controller(kept, hostname=LOOPBACK, port=free_port())
    server.start()
    try:
        monkeypatch.setenv("MAIL", f"mailto://{LOOPBACK}:{server.port}?from=clawpipe@example.org&to=me@example.org&mode=insecure")
        Outbox(home).put(event(home, "night.failed", "the disk is full", night="a-1"), ["apprise $MAIL"])
        deliver(Outbox(home), 30)
    finally:
        server.stop()
    [(sender, to, content)] = kept.mails
    mail = email.message_from_bytes(content, policy=policy.default)
    assert (sender, to) == ("clawpipe@example.org", ["me@example.org"])
    assert mail["subject"] == "clawpipe home: a night failed"
    body = mail.get_body(("plain", "html"))
    assert body
    assert "the disk is full" in body.get_content()
    assert "a-1" in body.get_content()
    assert Outbox(home).waiting() == []
