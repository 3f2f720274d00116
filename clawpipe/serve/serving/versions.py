"""Choose the loaded version that answers a request, and count how the answers of each version end.

New sessions get the version in service; a session stays with the version that answered it before. An answer ends on the version
that began it, whatever is put in service meanwhile.
"""

from __future__ import annotations

import hashlib
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from clawpipe.serve.serving.evidence import Answers, Asker, Evidence

if TYPE_CHECKING:
    from clawpipe.serve.serving.served import Served

NOBODY = Asker()
SESSION_SECONDS = 3600.0  # a session that is silent for longer is over
_RESPONSES = 10_000  # the last ones, on which feedback is counted
_LOADED = 3  # versions in memory: the one in service, the one before it, and one for sessions that stay


def is_older(one: Version, other: Version) -> bool:
    """Return whether one version was registered before another, so that going to it is going back."""
    numbers = one.served.version, other.served.version
    return all(number.isdecimal() for number in numbers) and int(numbers[0]) < int(numbers[1])


def identity_headers(served: Served) -> dict[str, str]:
    """Return the headers that say which version has answered."""
    return {
        "x-clawpipe-model-version": served.version,
        "x-clawpipe-digest": served.digest,
        "x-clawpipe-policy-version": served.spec.policy_version,
    }


class Version(ABC):
    """One version that can answer.

    Attributes:
        evidence: how answers ended since the version was put in service, and what was said of them.
        counts: the same kinds since it was loaded, and the tokens of its prompts and answers.
    """

    def __init__(self, served: Served) -> None:
        self.served, self.evidence, self.counts = served, Evidence(), Counter[str]()
        self.headers = identity_headers(served)

    @property
    def answers(self) -> Answers:
        """The answers that count as evidence."""
        return self.evidence.all()

    def count(self, kinds: Mapping[str, bool], asker: Asker = NOBODY) -> None:
        """Count an answer that ended, by the kinds that it is of."""
        self.counts.update(kind for kind, is_one in kinds.items() if is_one)
        self.evidence.answer(kinds, asker)

    @abstractmethod
    async def close_when_unused(self) -> None:
        """Wait for the last answers of a version that gets no new requests, then close it."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def cancel(self) -> None:
        """Cancel every answer."""

    @abstractmethod
    def keep_ended(self, keep: bool) -> None:
        """Keep or free the cached keys and values of ended answers."""


V = TypeVar("V", bound=Version)


class Versions(Generic[V]):
    """The loaded versions; used from the event loop.

    Attributes:
        current: the version in service.
        previous: the one before it.
        trial: a version that answers a share of new sessions only, or a share of requests beside the version in service.
        shadow_share: share of requests that the version on trial also answers, without the client seeing it; 0: it serves sessions.

    Args:
        current: the version in service.
        session_seconds: how long a silent session keeps its version; 0: its next turn gets the version in service.
    """

    def __init__(self, current: V, session_seconds: float = SESSION_SECONDS) -> None:
        self.current = current
        self.previous: V | None = None
        self.trial: V | None = None
        self.shadow_share = 0.0
        self._share = 0.0  # share of new sessions that the version on trial answers
        self._responses: dict[str, tuple[V, Asker]] = {}
        self._loaded = [self.current]  # the one that was in service last is last
        self._session_seconds = session_seconds
        self._sessions: dict[str, tuple[V, float]] = {}  # the one that asked last is last

    @property
    def loaded(self) -> tuple[V, ...]:
        return tuple(self._loaded)

    def find(self, version: str) -> V | None:
        """Return a loaded version by its number."""
        return next((live for live in self._loaded if live.served.version == version), None)

    def of_session(self, session: str) -> V:
        """Return the version that answers a session's next request; "" is no session."""
        now = time.monotonic()
        self._forget_silent(now)
        live, _ = self._sessions.pop(session, (self._for_new(session), now))
        if session and self._session_seconds:
            self._sessions[session] = live, now
        return live

    def sessions_of(self, live: V) -> int:
        """Return how many sessions stay on a version."""
        return sum(found is live for found, _ in self._sessions.values())

    def end_session(self, session: str) -> None:
        """Forget a session: if it goes on, it gets the version in service."""
        self._sessions.pop(session, None)

    def record_response(self, response: str, live: V, asker: Asker = NOBODY) -> None:
        """Record which version produced a response, and who asked, so that feedback can be counted for it."""
        self._responses[response] = live, asker
        if len(self._responses) > _RESPONSES:
            del self._responses[next(iter(self._responses))]

    def rate(self, response: str, value: float) -> bool:
        """Count feedback, from -1 to 1, for the version that produced a response; False if the response is unknown or was rated
        before."""
        live, asker = self._responses.pop(response, (None, NOBODY))
        if live:
            live.evidence.rate(value >= 0, asker)
            live.counts.update(["rated", *(["disliked"] if value < 0 else [])])
        return live is not None

    def shadow_of(self, live: V) -> V | None:
        """Return the version on trial, if it is to answer a request beside the version `live`; nobody sees that answer."""
        return self.trial if live is self.current and random.random() < self.shadow_share else None

    def put_on_trial(self, live: V, share: float, shadow_share: float = 0.0) -> list[V]:
        """Give this share of new sessions a version, or let it answer a share of requests unseen.

        Returns:
            versions to be closed, see `put_in_service`.
        """
        retired = self.end_trial()
        self.trial = live
        self.show_trial(share, shadow_share)
        self._loaded = [live, *(other for other in self._loaded if other is not live)]
        self._share_memory()
        return [*retired, *self._retire()]

    def show_trial(self, share: float, shadow_share: float = 0.0) -> None:
        """Give this share of new sessions the version on trial, whose answers are counted anew."""
        assert self.trial
        self._share, self.shadow_share, self.trial.evidence = share, shadow_share, Evidence()

    def end_trial(self) -> list[V]:
        """Let the sessions of the version on trial go on with the one in service; return it, to be closed."""
        ended, self.trial, self.shadow_share = self.trial, None, 0.0
        if ended is None:
            return []
        self._leave(ended)
        self._share_memory()
        if ended is self.previous:
            return []
        self._unload([ended])
        return [ended]

    def put_in_service(self, live: V) -> list[V]:
        """Give new sessions this version; return versions that no session has any more, to be closed.

        On the way back, to the previous or an older version, the sessions of the replaced version move as well.
        """
        if live is self.current:
            return []
        if live is self.trial:
            self.trial, self.shadow_share = None, 0.0
        elif live is self.previous or is_older(live, self.current):
            self._leave(self.current)
        self.previous, self.current = self.current, live
        live.evidence = Evidence()
        self._loaded = [*(other for other in self._loaded if other is not live), live]
        self._share_memory()
        return [*self.end_trial(), *self._retire()]

    async def close(self) -> None:
        for live in self._loaded:
            await live.close()

    def cancel(self) -> None:
        """Cancel every answer."""
        for live in self._loaded:
            live.cancel()

    def _retire(self) -> list[V]:
        """Remove versions beyond those that fit; sessions that they had go on with the version in service."""
        spare = [live for live in self._loaded if live not in (self.current, self.previous, self.trial)]
        retired = spare[: max(0, len(self._loaded) - _LOADED)]
        self._unload(retired)
        for live in retired:
            self._leave(live)
        return retired

    def _unload(self, retired: Sequence[V]) -> None:
        """Remove versions, and their responses: what refers to a version keeps its weights in memory."""
        self._loaded = [live for live in self._loaded if live not in retired]
        self._responses = {name: live for name, live in self._responses.items() if live[0] not in retired}

    def _share_memory(self) -> None:
        """Free the cached keys and values of ended answers in all versions that get no new sessions."""
        for live in self._loaded:
            live.keep_ended(live in (self.current, self.trial))

    def _leave(self, live: V) -> None:
        """Let the sessions of a version go on with the one in service."""
        self._sessions = {name: found for name, found in self._sessions.items() if found[0] is not live}

    def _for_new(self, session: str) -> V:
        """Return the version of a new session; the same one each time that a session with this id begins."""
        place = int.from_bytes(hashlib.sha256(session.encode()).digest()[:8]) / 2**64
        return self.trial if self.trial and session and place < self._share else self.current

    def _forget_silent(self, now: float) -> None:
        while self._sessions:
            session, (_, asked) = next(iter(self._sessions.items()))
            if now - asked < self._session_seconds:
                return
            del self._sessions[session]
