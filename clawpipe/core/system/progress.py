"""Progress of a running step, reported to a listener if there is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class Listener(Protocol):
    def progress(self, done: float, total: float, note: str = "") -> None: ...
    def update(self, metrics: Mapping[str, Any]) -> None: ...


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def reporting_to(listener: Listener) -> Iterator[None]:
    """Let `listener` get the progress of steps that run in this block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def listener() -> Listener | None:
    """Return who listens to the steps of the enclosing block."""
    return _listener.get()


def report(done: float, total: float, note: str = "") -> None:
    """Report that the step has done `done` of `total`."""
    if (listener := _listener.get()) is not None:
        listener.progress(done, total, note)


def report_step(metrics: Mapping[str, Any]) -> None:
    """Report an optimizer step of a training: its number (`step`), the total (`of`), its metrics."""
    if (listener := _listener.get()) is not None:
        listener.update(metrics)
