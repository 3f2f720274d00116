"""The models of single users beside the one that serves all: adapters on one base, each for the requests of its user alone.

A user's champion is looked up when the user asks, and again a few seconds later; whoever has none gets the shared model.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from clawpipe.errors import ClawpipeError, DataError, NotFoundError
from clawpipe.model.engines.adapters import Adapter
from clawpipe.serve.serving.policy import ServedPolicy
from clawpipe.serve.serving.served import Served
from clawpipe.serve.serving.versions import identity_headers

LOOK_SECONDS = 2.0  # between two looks at the registry for one user
KEPT = 256  # users whose models are kept in memory, those that asked last

_log = logging.getLogger(__name__)


class OwnModel(NamedTuple):
    """A user's own version, its adapter, and the headers that name it."""

    served: Served
    adapter: Adapter
    headers: dict[str, str]


class Champion(Protocol):
    """What an alias names; `clawpipe.serve.serving.found.Alias` is the implementation."""

    def version(self) -> str: ...

    def find(self, version: str) -> Served: ...


class OwnModels:
    """Finds and keeps the users' models; used from the event loop.

    Args:
        champion: returns the alias of a user's model, by the user's digest.
    """

    def __init__(self, champion: Callable[[str], Champion], look_seconds: float = LOOK_SECONDS) -> None:
        self._champion, self._look_seconds = champion, look_seconds
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def of(self, user: str, policy: ServedPolicy) -> OwnModel | None:
        """Return the model of a user; None if the shared one answers.

        Args:
            user: the user's digest; "" is nobody.
            policy: the shared one, on whose base the adapter has to be.
        """
        if not user:
            return None
        kept = self._kept.setdefault(user, _Kept())
        self._kept.move_to_end(user)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        async with kept.lock:
            if time.monotonic() - kept.looked >= self._look_seconds:
                await asyncio.to_thread(self._look, kept, user, policy)
                kept.looked = time.monotonic()
        return kept.own if kept.own and kept.own.served.spec.base == policy.served.spec.base else None

    def _look(self, kept: _Kept, user: str, policy: ServedPolicy) -> None:
        """Load the version that the user's alias names, if it is another one than before; one that cannot serve is not tried
        again."""
        alias, number = self._champion(user), None
        try:
            number = alias.version()
            if number != kept.number:
                kept.own = own_model(alias.find(number), policy)
        except NotFoundError:
            kept.own = None
        except DataError as error:
            kept.own = None
            _log.error("the model of user %s cannot serve, the shared one does: %s", user, error)
        except ClawpipeError as error:
            _log.warning("the registry could not be asked for user %s: %s", user, error)
            return
        kept.number = number


def own_model(served: Served, policy: ServedPolicy) -> OwnModel:
    """Load the adapter of a user's version on the base of the shared one.

    Raises:
        DataError: it is on another base, writes calls in another format, has whole weights, or is no LoRA of numbers.
    """
    shared, own = policy.served.spec, served.spec
    if own.adapter is None or (own.base, own.tool_call_format) != (shared.base, shared.tool_call_format):
        what = f"version {served.version} of {served.name} is no adapter on the base of the model that serves all"
        raise DataError(what, served.name, "train both on one base, with train.adapter lora and serving.artifact adapter")
    return OwnModel(served, policy.load_adapter(Path(own.adapter)), identity_headers(served))


class _Kept:
    """What is known of one user's model: the number of the version and when it was looked up last."""

    def __init__(self) -> None:
        self.own: OwnModel | None = None
        self.number: str | None = None
        self.looked = float("-inf")
        self.lock = asyncio.Lock()
