"""Authenticate clients by the digests of their keys, and enforce the limits of each key."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from clawpipe.core.store.home import Home
from clawpipe.errors import ClawpipeError
from clawpipe.serve.gateway.keys import Key, digest_of, keys_path, read_keys
from clawpipe.serve.serving.access import keys_of
from clawpipe.serve.serving.errors import ApiError

AT_ONCE = 256  # requests of all keys, unless the gateway is told another number
_SHARE = 0.75  # of the places that one key may take where others may come
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 5
_DAY = 86400


class Clients:
    """Knows the keys of a home, follows its file, and counts the requests of each.

    Args:
        home: the home with the keys.
        more: keys that are not in the home.
        at_once: requests that are answered at a time.
    """

    def __init__(self, home: Home, more: Sequence[Key] = (), at_once: int = AT_ONCE) -> None:
        self._home, self._more, self.at_once = home, more, at_once
        self._stamp, self._looked = -1, 0.0
        self._keys: dict[str, Key] = {}
        self._usage: dict[str, Usage] = {}
        self._busy = 0
        self._follow()

    def known(self, authorization: str, api_key: str = "") -> Key:
        """Return the key of an Authorization header, or of `x-api-key`, which Anthropic's clients send.

        Raises:
            ApiError: 401, no key or a wrong one.
        """
        self._follow()
        given = keys_of(authorization, api_key)
        key = next((found for one in given if (found := self._keys.get(digest_of(one))) and not found.revoked), None)
        if key is None:
            what = "a wrong API key was sent" if authorization or api_key else "no API key was sent; send it as a bearer token"
            raise ApiError(401, what, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
        return key

    @contextmanager
    def place(self, key: Key) -> Iterator[None]:
        """Take a place for one request of a key.

        Raises:
            ApiError: 503, all places are taken; 429, one of the key's limits is reached, or its share of the places is taken.
        """
        if self._busy >= self.at_once:
            what = f"{self.at_once} requests are being answered already"
            raise ApiError(503, what, code="server_busy", headers={"retry-after": str(_RETRY_SECONDS)})
        usage = self._usage.setdefault(key.name, Usage())
        usage.begin(key, self._places_of(key), time.time())
        self._busy += 1
        try:
            yield
        finally:
            usage.running -= 1
            self._busy -= 1

    def _places_of(self, key: Key) -> int:
        """Return how many requests of a key may be answered at a time."""
        is_alone = sum(not other.revoked for other in self._keys.values()) <= 1
        return key.at_once or (self.at_once if is_alone else max(1, int(_SHARE * self.at_once)))

    def _follow(self) -> None:
        """Read the keys again if their file has changed; the old ones stay if it cannot be read."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            stamp = keys_path(self._home).stat().st_mtime_ns
            found = read_keys(self._home) if stamp != self._stamp else None
        except FileNotFoundError:
            stamp, found = 0, ()
        except (ClawpipeError, OSError):
            return
        if found is not None:
            self._stamp, self._keys = stamp, {key.sha256: key for key in (*found, *self._more)}


class Usage:
    """The requests of one key: those that run, those of the last minute, and the number of today's."""

    def __init__(self) -> None:
        self.running = 0
        self._minute: deque[float] = deque()
        self._day, self._today = 0, 0

    def begin(self, key: Key, places: int, now: float) -> None:
        """Count a request that begins. Raises ApiError (429) if a limit is reached; then it does not count."""
        while self._minute and self._minute[0] <= now - 60:
            self._minute.popleft()
        if self._day != now // _DAY:
            self._day, self._today = int(now // _DAY), 0
        if self.running >= places:
            raise _too_many(f"the key may ask {places} requests at a time", 1)
        if key.per_minute is not None and len(self._minute) >= key.per_minute:
            raise _too_many(f"the key may ask {key.per_minute} requests a minute", int(self._minute[0] + 61 - now))
        if key.per_day is not None and self._today >= key.per_day:
            raise _too_many(f"the key may ask {key.per_day} requests a day", int((self._day + 1) * _DAY - now) + 1)
        self.running, self._today = self.running + 1, self._today + 1
        if key.per_minute is not None:
            self._minute.append(now)


def _too_many(what: str, seconds: int) -> ApiError:
    return ApiError(429, what, code="rate_limit_exceeded", headers={"retry-after": str(max(1, seconds))})
