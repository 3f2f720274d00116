"""Send HTTP requests to the servers of a model: to the least loaded one first, and again where a retry can help."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import httpx

from clawpipe.core.basics.words import without_secret
from clawpipe.errors import BusyError, ConfigError

_LATER = (408, 409, 425, 429, 500, 502, 503, 504)  # worth another try
_THIS_ONE = (400, 413, 422)  # statuses about one request: it is too long, say
_LONGEST_WAIT = 60.0  # seconds between two tries
_CONNECT_SECONDS = 10.0
_AVOIDED_SECONDS = 30.0  # for which a server that did not answer comes after the others

T = TypeVar("T")
R = TypeVar("R")


class RefusedRequestError(ConfigError):
    """A request that a server refuses; other requests may succeed."""


@dataclass
class _Load:
    """The requests under way at one server, and until when it is avoided."""

    url: str
    requests: int = 0
    avoided_until: float = 0.0


@dataclass
class Servers:
    """Servers of one model, asked by many threads at once. Close it when done.

    Attributes:
        urls: without a slash at the end.
        key: API key; "": none. Its environment variable is `key_name`, for messages.
        timeout: seconds that one request may take.
        tries: of one request. The waits between them double, and are drawn at random up to that, so that requests which failed
            together do not come back together.
        concurrency: requests at once, over all servers.
    """

    urls: Sequence[str]
    key: str = field(default="", repr=False)
    key_name: str = "OPENAI_API_KEY"
    timeout: float = 300.0
    tries: int = 6
    concurrency: int = 64
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        times = httpx.Timeout(self.timeout, connect=min(_CONNECT_SECONDS, self.timeout))
        limits = httpx.Limits(max_connections=self.concurrency, max_keepalive_connections=self.concurrency)
        self._client = httpx.Client(headers=headers, timeout=times, limits=limits)
        self._loads = [_Load(url.rstrip("/")) for url in self.urls]
        self._threads = ThreadPoolExecutor(self.concurrency)

    def post(
        self, path: str, body: Any, *, at: str | None = None, allowed: Collection[int] = (), tries: int | None = None
    ) -> httpx.Response:
        """Post JSON to the least loaded server, or to the one at the URL `at`; return the answer.

        Args:
            allowed: statuses of refusals that are returned like an answer.
            tries: other than `self.tries`.

        Raises:
            ConfigError: the server refuses the request, and another try would not change that; `RefusedRequestError` where it may
                answer other requests.
            BusyError: no server answers, or they are overloaded, after all tries.
        """
        return self._tried(lambda url: self._client.post(f"{url}{path}", json=body), at, allowed, tries or self.tries)

    def get(self, path: str, *, at: str, allowed: Collection[int] = ()) -> httpx.Response:
        """Get a path of the server at the URL `at`. Arguments and errors as for `post`."""
        return self._tried(lambda url: self._client.get(f"{url}{path}"), at, allowed, self.tries)

    def delete(self, path: str, *, at: str, allowed: Collection[int] = ()) -> httpx.Response:
        """Delete a path of the server at the URL `at`. Arguments and errors as for `post`."""
        return self._tried(lambda url: self._client.delete(f"{url}{path}"), at, allowed, self.tries)

    def map(self, function: Callable[[T], R], values: Iterable[T]) -> list[R]:
        """Return `function` of each value, computed by `concurrency` threads; the first error ends those that have not begun."""
        futures = [self._threads.submit(function, value) for value in values]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    @property
    def closed(self) -> bool:
        return self._client.is_closed

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tried(self, ask: Callable[[str], httpx.Response], at: str | None, allowed: Collection[int], tries: int) -> httpx.Response:
        failed, url, wait = "", "", 0.0
        for number in range(tries):
            time.sleep(wait)
            with self._least_loaded(at) as server:
                url, wait = server.url, random.uniform(0.5, 1) * min(0.5 * 2**number, _LONGEST_WAIT)
                try:
                    answer = ask(url)
                except httpx.TransportError as error:
                    failed = f"it does not answer: {type(error).__name__}"
                    server.avoided_until = time.monotonic() + _AVOIDED_SECONDS
                    continue
            if answer.status_code in allowed:
                return answer
            if answer.status_code not in _LATER:
                return self._accepted(answer, url)
            failed, wait = f"it answers {answer.status_code}", _asked_to_wait(answer, wait)
        raise BusyError(f"{failed}, {tries} times", url, "start it, or try again later: what was answered is kept")

    @contextmanager
    def _least_loaded(self, at: str | None) -> Iterator[_Load]:
        now = time.monotonic()
        with self._lock:
            among = [load for load in self._loads if at is None or load.url == at.rstrip("/")]
            load = min(among, key=lambda load: (load.avoided_until > now, load.requests))
            load.requests += 1
        try:
            yield load
        finally:
            with self._lock:
                load.requests -= 1

    def _accepted(self, answer: httpx.Response, url: str) -> httpx.Response:
        if answer.is_success:
            return answer
        what = f"it answers {answer.status_code}: {told(answer)}"
        kind = RefusedRequestError if answer.status_code in _THIS_ONE else ConfigError
        raise kind(what, url, f"check the model's name, and the key in {self.key_name}")


def told(answer: httpx.Response, length: int = 300) -> str:
    """Return what a server said as one line, without the key that it was asked with."""
    return without_secret(answer.text, answer.request.headers.get("authorization", "").removeprefix("Bearer "))[:length]


def _asked_to_wait(answer: httpx.Response, otherwise: float) -> float:
    """Return the seconds that an overloaded server asks to wait."""
    asked = answer.headers.get("retry-after", "")
    return min(float(asked), _LONGEST_WAIT) if asked.isdigit() else otherwise
