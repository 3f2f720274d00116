"""How a step tells whoever watches how far it has come. Where nobody does, nothing happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class Listener(Protocol):
    def progress(self, done: float, total: float, note: str = "") -> None: ...
    def update(self, facts: Mapping[str, Any]) -> None: ...


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Steps that run in this block are listened to."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report(done: float, total: float, note: str = "") -> None:
    """The step has done `done` of `total`."""
    if (listener := _listener.get()) is not None:
        listener.progress(done, total, note)


def report_update(facts: Mapping[str, Any]) -> None:
    """The step, a training, has made an update: its number (`step`), how many there are (`of`), its metrics."""
    if (listener := _listener.get()) is not None:
        listener.update(facts)
