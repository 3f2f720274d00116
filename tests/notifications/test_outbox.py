"""Events are kept until they are delivered."""

from __future__ import annotations

import pytest

from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import LOOPBACK, free_port
from clawpipe.record.notifications.deliver import deliver
from clawpipe.record.notifications.events import Event, event
from clawpipe.record.notifications.outbox import Outbox, leave
from tests.notifications.receiver import receiving

HOOK = "webhook $HOOK"


@pytest.fixture
def outbox(home: Home) -> Outbox:
    return Outbox(home)


def disk(home: Home, day: str = "monday") -> Event:
    return event(home, "disk.low", "1 GiB free", about=day)


def test_an_event_is_received_as_documented(home: Home, outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    with receiving() as receiver:
        monkeypatch.setenv("HOOK", receiver.url)
        sent = event(home, "night.verdict", "HOLD:\n too few", night="a-1", model="m", verdict="HOLD", evidence="e", report=None)
        outbox.put(sent, [HOOK])
        deliver(outbox, 10)
        [got] = receiver.all()
    assert got == {
        "schema_version": "1.0",
        "id": sent.id,
        "time": sent.time,
        "home": {"id": (home.root / "id").read_text().strip(), "name": "home"},
        "kind": "night.verdict",
        "text": "HOLD: too few",
        "model": "m",
        "night": "a-1",
        "verdict": "HOLD",
        "evidence": "e",
        "error": None,
        "report": None,
    }
    assert outbox.waiting() == []


def test_an_event_is_told_once(home: Home, outbox: Outbox):
    assert outbox.put(disk(home), ["a", "b"])
    assert not outbox.put(disk(home), ["a", "b"])
    assert outbox.put(disk(home, "tuesday"), ["a"])
    assert [receiver for _, receiver, _ in outbox.waiting()] == ["a", "b", "a"]


def test_a_receiver_that_is_away_is_tried_later_each_time(home: Home, outbox: Outbox):
    outbox.put(disk(home), ["a"], now=0)
    outbox.put(disk(home, "tuesday"), ["a"], now=1)
    now, delays = 1.0, []
    for _ in range(11):
        delivery = outbox.claim("a", now)
        assert delivery
        assert delivery.event.id == disk(home).id
        outbox.failed(delivery, "away", now)
        due = next(
            after for after in range(1, 4000) if outbox.claim("a", now + after - 1e-6) is None and is_due(outbox, now + after)
        )
        delays.append(due)
        now += due
    assert delays == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]


def is_due(outbox: Outbox, now: float) -> bool:
    """Without taking it."""
    with outbox._open() as database:
        return bool(database.execute("SELECT 1 FROM deliveries WHERE done IS NULL AND due <= ?", (now,)).fetchone())


def test_two_processes_do_not_take_one_delivery(home: Home, outbox: Outbox):
    outbox.put(disk(home), ["a"], now=0)
    assert outbox.claim("a", 1)
    assert outbox.claim("a", 2) is None
    assert outbox.claim("a", 62)  # the first was killed


def test_what_was_kept_arrives_when_the_receiver_is_back(home: Home, outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    port = free_port()
    monkeypatch.setenv("HOOK", f"http://{LOOPBACK}:{port}/T0/secret-part")
    outbox.put(disk(home), [HOOK], now=0)
    deliver(outbox, 10)
    [(kept, _, error)] = outbox.waiting()
    assert kept == disk(home).model_copy(update={"time": kept.time})
    assert error == "the receiver does not answer: URLError"
    with receiving(port) as receiver:
        deliver(outbox, 10)
        assert receiver.all() == []  # it is not due yet
        with outbox._open() as database:
            database.execute("UPDATE deliveries SET due = 0")
        deliver(outbox, 10)
        assert [got["id"] for got in receiver.all()] == [disk(home).id]
    assert b"secret-part" not in (home.root / "notifications.sqlite").read_bytes()


@pytest.mark.parametrize("code", [302, 404, 500])
def test_only_an_answer_of_success_counts(home: Home, outbox: Outbox, code: int):
    with receiving() as receiver:
        receiver.code = code
        outbox.put(disk(home), [f"webhook {receiver.url}"])
        deliver(outbox, 10)
    assert [error for *_, error in outbox.waiting()] == [f"the receiver answered {code}"]


@pytest.mark.parametrize(
    ("value", "why"),
    [(None, "the environment variable is not set"), ("file:///etc/passwd", "the address does not begin with http:// or https://")],
)
def test_a_wrong_address_is_said(home: Home, outbox: Outbox, monkeypatch: pytest.MonkeyPatch, value: str | None, why: str):
    if value:
        monkeypatch.setenv("HOOK", value)
    outbox.put(disk(home), [HOOK])
    deliver(outbox, 10)
    assert [error for *_, error in outbox.waiting()] == [why]


def test_a_slow_receiver_delays_nobody_for_longer_than_the_bound(home: Home, outbox: Outbox):
    """Its delivery is under way, and counts as kept."""
    import threading

    let_go, reached = threading.Event(), threading.Event()

    def slow(place: str, told: Event) -> None:
        reached.set()
        let_go.wait()

    outbox.put(disk(home), ["slow x"])
    deliver(outbox, 0.2, {"slow": slow})
    assert reached.wait(10)
    assert len(outbox.waiting()) == 1
    let_go.set()


def test_processes_without_settings_leave_events_for_others(home: Home, outbox: Outbox):
    leave(home, "service.failing", "the worker keeps ending")
    leave(home, "service.failing", "the worker keeps ending")
    assert outbox.waiting() == []
    outbox.address(["a", "b"])
    assert [(told.kind, receiver) for told, receiver, _ in outbox.waiting()] == [("service.failing", "a"), ("service.failing", "b")]


def test_old_events_are_forgotten(home: Home, outbox: Outbox):
    outbox.put(disk(home), ["a"], now=0)
    outbox.prune(now=29 * 86400)
    assert outbox.waiting()
    outbox.prune(now=31 * 86400)
    assert outbox.waiting() == []
