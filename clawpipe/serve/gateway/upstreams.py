"""Several engines behind one gateway, such as the old and the new one of a change of version (blue and green).

They are listed in a file, which the gateway follows:

    - url: http://127.0.0.1:8000/v1
      weight: 0
    - url: http://127.0.0.1:8001/v1

New sessions are spread by weight (1 by default); a session stays with its engine while that one answers. An engine of weight 0
gets no new sessions as long as another one answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from clawpipe.core.basics.plain_yaml import parse_yaml
from clawpipe.data.capture.settings import IDLE_SECONDS
from clawpipe.errors import ConfigError
from clawpipe.serve.gateway.secret import Secret
from clawpipe.serve.gateway.upstream import Reply, Upstream
from clawpipe.serve.serving.errors import ApiError

log = logging.getLogger("clawpipe.gateway")
LOOK_SECONDS = 2.0  # between two looks at the file and at the engines


class Listed(BaseModel):
    """One engine of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)


class Upstreams:
    """The engines that the gateway may ask.

    Args:
        listed: engines with their weights, at least one.
        key: API key of all engines; empty for none.
        file: the file that lists the engines, which is read again when it changes.

    Attributes:
        secret: the key, which no client may see.

    Raises:
        ConfigError: an address is not one of HTTP.
    """

    def __init__(self, listed: Sequence[Listed], key: str = "", file: Path | None = None) -> None:
        self._key, self._file, self.secret = key, file, Secret(key)
        self._stamp = file.stat().st_mtime_ns if file else 0
        self._known: dict[str, Upstream] = {}
        self._weights: dict[str, float] = {}
        self._silent: set[str] = set()  # engines that did not answer when they were asked last
        self._sessions: dict[str, tuple[str, float]] = {}  # the one that asked last is last
        self._take(listed)

    @classmethod
    def named(cls, name: str, key: str = "") -> Upstreams:
        """Return the engine at a URL, or the engines that a file lists. Raises ConfigError if the file is no list of engines."""
        if name.startswith(("http://", "https://")) or not name.endswith((".yaml", ".yml")):
            return cls([Listed(url=name)], key)
        return cls(read_list(Path(name)), key, Path(name))

    def __str__(self) -> str:
        return ", ".join(self._known[url].url for url in self._weights)

    async def open(self) -> None:
        for one in self._known.values():
            await one.open()

    async def close(self) -> None:
        for one in self._known.values():
            await one.close()

    def of(self, session: str) -> Upstream:
        """Return the engine that answers a session's next request; "" is no session."""
        now = time.monotonic()
        while self._sessions and now - next(iter(self._sessions.values()))[1] > IDLE_SECONDS:
            del self._sessions[next(iter(self._sessions))]
        url, _ = self._sessions.pop(session, ("", now))
        if url not in self._answering():
            url = self._chosen(session)
        if session:
            self._sessions[session] = url, now
        return self._known[url]

    def answering(self) -> list[Upstream]:
        """Return the engines that answer; all if none does."""
        return [self._known[url] for url in self._answering()]

    async def ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None = None) -> Reply:
        """Ask an engine for something that belongs to no session. Raises ApiError (503) if none begins to answer."""
        tried: list[Upstream] = []
        while True:
            one = self.of("")
            try:
                return await one.ask(method, path, body, headers)
            except ApiError:
                if one in tried or not self.mark_silent(one):
                    raise
                tried.append(one)

    def mark_silent(self, one: Upstream) -> bool:
        """Mark an engine as silent. Returns whether another engine may be asked."""
        url = next(url for url, known in self._known.items() if known is one)
        if url in self._weights and url not in self._silent:
            log.warning("the engine at %s does not answer", one.url)
            self._silent.add(url)
        return bool(self._weights.keys() - self._silent)

    async def is_healthy(self) -> bool:
        """Check all engines, and return whether any answers."""
        urls = list(self._weights)
        answers = await asyncio.gather(*(self._known[url].is_healthy() for url in urls))
        self._silent = {url for url, answered in zip(urls, answers, strict=True) if not answered}
        return any(answers)

    async def follow(self) -> None:
        """Check the file and the engines periodically, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception as error:
                log.warning("the list of engines stays as it is: %s", error)

    async def look(self) -> None:
        """Take the file's list if it has changed, and ask the engines if there are several, or what was found out of the one may be
        out of date. Raises ConfigError if the list is wrong."""
        if self._file and (stamp := self._file.stat().st_mtime_ns) != self._stamp:
            self._stamp = stamp
            for new in self._take(read_list(self._file)):
                await new.open()
            log.warning("new sessions go to: %s", ", ".join(f"{url} ({weight:g})" for url, weight in self._weights.items()))
        if len(self._weights) > 1 or any(one.found for one in self._known.values()):
            await self.is_healthy()

    def _take(self, listed: Sequence[Listed]) -> list[Upstream]:
        """Take a list; return engines that are new. Those that are no longer in it end their answers."""
        new = {one.url: Upstream(one.url, self._key) for one in listed if one.url not in self._known}
        self._known |= new
        self._weights = {one.url: one.weight for one in listed}
        return list(new.values())

    def _answering(self) -> dict[str, float]:
        """Return the weights of the engines that answer; of all if none does."""
        return {url: weight for url, weight in self._weights.items() if url not in self._silent} or self._weights

    def _chosen(self, session: str) -> str:
        """Return the engine of a new session: by weight, among those that answer, the same one each time."""
        answering = self._answering()
        weighted = {url: weight for url, weight in answering.items() if weight} or dict.fromkeys(answering, 1.0)
        left = int.from_bytes(hashlib.sha256(session.encode()).digest()[:8]) / 2**64 * sum(weighted.values())
        for url, weight in weighted.items():
            left -= weight
            if left < 0:
                return url
        return next(reversed(weighted))


def read_list(path: Path) -> list[Listed]:
    """Return the engines that a file lists.

    Raises:
        ConfigError: it cannot be read, or is no list of engines.
    """
    try:
        found = TypeAdapter(list[Listed]).validate_python(parse_yaml(path.read_bytes()))
        if len({one.url for one in found}) < max(len(found), 1):
            raise ConfigError("it lists no engine, or one twice", str(path), "a list of `- url: http://127.0.0.1:8000/v1`")
        for one in found:
            Upstream(one.url)
    except (OSError, yaml.YAMLError, ValidationError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else type(error).__name__
        raise ConfigError(f"it is no list of engines: {why}", str(path), "a list of `- url: http://127.0.0.1:8000/v1`") from None
    return found
