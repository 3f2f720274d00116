"""Parts of a step: they are called here one after another, or elsewhere side by side if the enclosing block says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

from clawpipe.core.basics.json_types import Options
from clawpipe.core.store.artifacts import Store

T = TypeVar("T")


class Elsewhere(Protocol):
    """Calls a function of a module with each of the arguments and a store of its own; yields in the order of the calls."""

    def __call__(self, function: Callable[..., T], calls: Sequence[Options]) -> Iterator[T]: ...


_elsewhere: ContextVar[Elsewhere | None] = ContextVar("elsewhere", default=None)


@contextmanager
def spread_to(elsewhere: Elsewhere) -> Iterator[None]:
    """Let `elsewhere` call the parts of the steps that run in this block."""
    token = _elsewhere.set(elsewhere)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def is_spread() -> bool:
    """Whether parts are called side by side, so that more of them take less time."""
    return _elsewhere.get() is not None


def in_parts(store: Store, function: Callable[..., T], calls: Sequence[Options]) -> Iterator[T]:
    """Yield `function(store, **arguments)` for the arguments of each call, in their order.

    Arguments and results are refs, settings and plain values: they may go to another machine, where `store` is that machine's.
    """
    elsewhere = _elsewhere.get()
    if elsewhere is None:
        yield from (function(store, **arguments) for arguments in calls)
    else:
        yield from elsewhere(function, calls)
