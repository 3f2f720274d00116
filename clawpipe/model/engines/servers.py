"""Send HTTP requests to the servers of a model: to the one that would answer first, and again where a retry can help."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import httpx

from clawpipe.core.basics.retry_after import LONGEST_WAIT, asked_to_wait
from clawpipe.core.basics.words import without_secret
from clawpipe.errors import BusyError, ClawpipeError, ConfigError
from clawpipe.model.engines.balance import Balance, Replica

_LATER = (408, 409, 425, 429, 500, 502, 503, 504)  # worth another try
_THIS_ONE = (400, 413, 422)  # statuses about one request: it is too long, say
_CONNECT_SECONDS = 10.0
_REST = 1.0  # seconds of a server that is full, and does not say how long
_FULL = 429  # a status: more requests at a time than the server takes

T = TypeVar("T")
R = TypeVar("R")


class RefusedRequestError(ConfigError):
    """A request that a server refuses; other requests may succeed."""


class Where(NamedTuple):
    """Which server is asked, how often, and for how long; None: whichever would answer first, and as all requests."""

    at: str | None = None
    tries: int | None = None
    timeout: float | None = None


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

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        times = httpx.Timeout(self.timeout, connect=min(_CONNECT_SECONDS, self.timeout))
        limits = httpx.Limits(max_connections=self.concurrency, max_keepalive_connections=self.concurrency)
        self._client = httpx.Client(headers=headers, timeout=times, limits=limits)
        self.balance = Balance([url.rstrip("/") for url in self.urls])
        self._threads = ThreadPoolExecutor(self.concurrency)

    def post(
        self,
        path: str,
        body: Any,
        *,
        at: str | None = None,
        allowed: Collection[int] = (),
        tries: int | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        """Post JSON to the server that would answer first, or to the one at the URL `at`; return the answer.

        Args:
            allowed: statuses of refusals that are returned like an answer.
            tries, timeout: other than those of all requests.

        Raises:
            ConfigError: the server refuses the request, and another try would not change that; `RefusedRequestError` where it may
                answer other requests.
            BusyError: no server answers, or they are overloaded, after all tries.
        """
        seconds = self._seconds(timeout)
        return self._tried(lambda url: self._client.post(f"{url}{path}", json=body, timeout=seconds), at, allowed, tries)

    def get(
        self, path: str, *, at: str, allowed: Collection[int] = (), tries: int | None = None, timeout: float | None = None
    ) -> httpx.Response:
        """Get a path of the server at the URL `at`. Arguments and errors as for `post`."""
        seconds = self._seconds(timeout)
        return self._tried(lambda url: self._client.get(f"{url}{path}", timeout=seconds), at, allowed, tries)

    def delete(self, path: str, *, at: str, allowed: Collection[int] = ()) -> httpx.Response:
        """Delete a path of the server at the URL `at`. Arguments and errors as for `post`."""
        return self._tried(lambda url: self._client.delete(f"{url}{path}"), at, allowed, None)

    def map(self, function: Callable[[T], R], values: Iterable[T]) -> list[R]:
        """Return `function` of each value, computed by `concurrency` threads; the first error ends those that have not begun."""
        futures = [self._threads.submit(function, value) for value in values]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def leave_out(self, url: str, why: str) -> None:
        """Give a server no requests until it is proven, see `Balance`."""
        self.balance.has_failed(self.balance.at(url), why, time.monotonic())

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

    def _seconds(self, timeout: float | None) -> httpx.Timeout:
        seconds = self.timeout if timeout is None else timeout
        return httpx.Timeout(seconds, connect=min(_CONNECT_SECONDS, seconds))

    def _tried(
        self, ask: Callable[[str], httpx.Response], at: str | None, allowed: Collection[int], tries: int | None
    ) -> httpx.Response:
        """Ask until a server answers, or so many tries have failed. One that is full is no failed try while others are answered."""
        try_once = partial(self._at, at) if at is not None else self._anywhere
        failed, most, number, wait = _Failed("all servers are left out", ", ".join(self.urls)), tries or self.tries, 0, 0.0
        while number < most:
            time.sleep(wait)
            answered = self.balance.answered
            found = try_once(ask)
            if isinstance(found, httpx.Response):
                if found.status_code in allowed or found.status_code not in _LATER:
                    return found if found.status_code in allowed else self.accepted(found)
                found = _Failed(f"it answers {found.status_code}", server_of(found), found)
            failed, wait = found or failed, random.uniform(0.5, 1) * min(0.5 * 2**number, LONGEST_WAIT)
            wait = _asked_to_wait(failed.answer, wait)
            number = 0 if failed.is_full and self.balance.answered != answered else number + 1
        raise BusyError(f"{failed.why}, {most} times", failed.url, "start it, or try again later: what was answered is kept")

    def _at(self, url: str, ask: Callable[[str], httpx.Response]) -> httpx.Response | _Failed:
        """Ask one server, whatever others think of it."""
        try:
            return _from(url.rstrip("/"), ask)
        except httpx.TransportError as error:
            return _Failed(f"it does not answer: {type(error).__name__}", url)

    def _anywhere(self, ask: Callable[[str], httpx.Response]) -> httpx.Response | _Failed | None:
        """Ask the server that would answer first, and remember how it did; None where all are left out."""
        with self.balance.place() as server:
            if server is None:
                return None
            begun = time.monotonic()
            try:
                if server.unproven:
                    self._prove(server)
                answer = _from(server.url, ask)
            except (httpx.TransportError, ClawpipeError) as error:
                if isinstance(error, ClawpipeError) and len(self.urls) == 1 and not isinstance(error, BusyError):
                    raise
                why = error.what if isinstance(error, ClawpipeError) else f"it does not answer: {type(error).__name__}"
                self.balance.has_failed(server, why, begun)
                return _Failed(why, server.url)
            if answer.status_code == _FULL:
                self.balance.is_full(server, _asked_to_wait(answer, _REST))
            elif answer.status_code in _LATER:
                self.balance.has_failed(server, f"it answers {answer.status_code}", begun, proven=True)
            else:
                self.balance.has_answered(server)
            return answer

    def _prove(self, server: Replica) -> None:
        if self.balance.proof:
            self.balance.proof(server.url)
        self.balance.is_back(server)

    def accepted(self, answer: httpx.Response) -> httpx.Response:
        """Return an answer; raise as `post` does if it is a refusal."""
        if answer.is_success:
            return answer
        what = f"it answers {answer.status_code}: {told(answer)}"
        kind = RefusedRequestError if answer.status_code in _THIS_ONE else ConfigError
        raise kind(what, server_of(answer), f"check the model's name, and the key in {self.key_name}")


class _Failed(NamedTuple):
    """Why a try failed, and at which server; its answer, if there was one."""

    why: str
    url: str
    answer: httpx.Response | None = None

    @property
    def is_full(self) -> bool:
        return self.answer is not None and self.answer.status_code == _FULL


def _from(url: str, ask: Callable[[str], httpx.Response]) -> httpx.Response:
    answer = ask(url)
    answer.extensions["server"] = url
    return answer


def server_of(answer: httpx.Response) -> str:
    """Return the URL of the server that answered."""
    return answer.extensions["server"]


def told(answer: httpx.Response, length: int = 300) -> str:
    """Return what a server said as one line, without the key that it was asked with."""
    return without_secret(answer.text, answer.request.headers.get("authorization", "").removeprefix("Bearer "))[:length]


def _asked_to_wait(answer: httpx.Response | None, otherwise: float) -> float:
    """Return the seconds that an overloaded server asks to wait."""
    asked = asked_to_wait(answer.headers) if answer is not None else None
    return otherwise if asked is None else asked
