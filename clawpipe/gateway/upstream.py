"""Send requests to the engine behind the gateway, and find out its capabilities.

The capabilities are found out once per model, by requests for one token: whether it says which tokens it sampled, and of which kind
its log-probs are (see clawpipe.contracts.logprobs), from which also the temperature of a request that names none follows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from clawpipe.capture.records import LogprobsKind
from clawpipe.contracts.logprobs import default_temperature, kind_by_temperatures
from clawpipe.errors import ConfigError
from clawpipe.gateway.answers import Collected
from clawpipe.json_types import JsonObject
from clawpipe.serving.errors import ApiError

log = logging.getLogger("clawpipe.gateway")
_CONNECT_SECONDS, _SILENT_SECONDS = 5.0, 600.0
_PROBE_SECONDS = 15.0
_KEPT_SECONDS = 4.0  # of an idle connection; servers close theirs after 5 and more
_RETRY_SECONDS = 5
_AGAIN_SECONDS, _MOST_NAMES = 30.0, 1000
_TOP = 5

CHAT = "/v1/chat/completions"
_KINDS: dict[str, LogprobsKind] = {"tempered": "tempered", "raw": "raw"}
KIND_HEADER = "x-clawpipe-logprobs"  # `clawpipe serve` says the kind, and samples at 1 unless told otherwise


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of an engine with one model. `temperature` applies to requests that name none; None if it is unknown."""

    tokens: bool
    logprobs_kind: LogprobsKind = "unknown"
    temperature: float | None = None

    def __str__(self) -> str:
        sampled = "its default temperature is unknown" if self.temperature is None else f"default temperature {self.temperature:g}"
        return f"token ids, {self.logprobs_kind} log-probs, {sampled}" if self.tokens else "tokens: none, only text is captured"


NO_TOKENS = Capabilities(tokens=False)


class Upstream:
    """One engine that the gateway asks. Its address comes from the configuration and from nowhere else.

    Args:
        url: its address, with or without `/v1`.
        key: what it is asked with; empty for none.

    Raises:
        ConfigError: the address is not one of HTTP.
    """

    def __init__(self, url: str, key: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
            raise ConfigError(f"{url!r} is no address of an engine", "--upstream", "such as http://127.0.0.1:8000/v1")
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._capabilities: dict[str, Capabilities] = {}
        self._asking = asyncio.Lock()
        self._again: dict[str, float] = {}  # when a model that did not answer may be asked again
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())

    async def close(self) -> None:
        if self._session:
            await self._session.close()

    async def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Ask the engine; the reply's body is still to be read. Redirects are not followed.

        Raises:
            ApiError: 503, it does not answer.
        """
        assert self._session is not None
        sent = {"content-type": "application/json", **(headers or {}), **self._headers} if body is not None else self._headers
        for attempt in (1, 2):
            try:
                return await self._session.request(method, self.url + path, data=body, headers=sent, allow_redirects=False)
            except aiohttp.ServerDisconnectedError as error:  # it closed a kept connection just as it was used
                if attempt == 2:
                    raise unavailable(error) from None
            except (aiohttp.ClientError, TimeoutError) as error:
                raise unavailable(error) from None
        raise AssertionError("unreachable")

    async def is_healthy(self) -> bool:
        """Return whether an engine answers."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                reply = await self.ask("GET", "/v1/models")
                reply.release()
                return reply.status < 500
        except (ApiError, TimeoutError):
            return False

    async def capabilities(self, model: str) -> Capabilities:
        """Return the engine's capabilities with a model. Until they are known, requests ask for tokens, and the kind is unknown."""
        if known := self._capabilities.get(model):
            return known
        async with self._asking:
            if model not in self._capabilities and time.monotonic() > self._again.get(model, 0.0):
                if found := await self._probe(model):
                    self.learn(model, found)
                elif len(self._again) < _MOST_NAMES:  # names of models that do not exist
                    self._again[model] = time.monotonic() + _AGAIN_SECONDS
        return self._capabilities.get(model, Capabilities(tokens=True))

    def learn(self, model: str, found: Capabilities) -> None:
        """Store the engine's capabilities with a model."""
        self._capabilities[model] = found
        log.info("model %.100r at %s: %s", model, self.url, found)

    async def _probe(self, model: str) -> Capabilities | None:
        """Ask for one token at three temperatures; None if the engine answered no request for the model."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                if not (one := await self._one_token(model, temperature=1.0)):
                    return Capabilities(tokens=False) if await self._one_token(model, plain=True) else None
                two, default = await self._one_token(model, temperature=2.0), await self._one_token(model)
        except (ApiError, TimeoutError, aiohttp.ClientError):
            return None
        if not two or one.collected.no_tokens():
            return Capabilities(tokens=False)
        if one.kind:
            return Capabilities(True, one.kind, temperature=1.0)
        kind = kind_by_temperatures(one.top, two.top)
        return Capabilities(True, kind, default_temperature(one.top, default.top) if kind == "tempered" and default else None)

    async def _one_token(self, model: str, *, plain: bool = False, **sampling: Any) -> _OneToken | None:
        """Ask for one token; None if the engine refuses."""
        body: JsonObject = {"model": model, "messages": [{"role": "user", "content": "Say a word."}], "max_tokens": 1, **sampling}
        if not plain:
            body |= {"return_token_ids": True, "logprobs": True, "top_logprobs": _TOP}
        reply = await self.ask("POST", CHAT, orjson.dumps(body))
        data = await reply.read()
        if reply.status != 200:
            if reply.status >= 500 or reply.status == 429:
                raise unavailable(None)
            return None
        return _OneToken.of(data, reply.headers.get(KIND_HEADER, ""))


Reply = aiohttp.ClientResponse


@dataclass(frozen=True)
class _OneToken:
    """An answer of one token, the log-probs of the likeliest tokens by their text, and their kind where the engine says it."""

    collected: Collected
    top: dict[str, float]
    kind: LogprobsKind | None

    @classmethod
    def of(cls, data: bytes, kind: str) -> _OneToken | None:
        try:
            body = orjson.loads(data)
            collected = Collected()
            collected.add(body)
            entries = ((body["choices"][0].get("logprobs") or {}).get("content") or [{}])[0].get("top_logprobs") or []
            known = _KINDS.get(kind)
            return cls(collected, {entry["token"]: float(entry["logprob"]) for entry in entries}, known)
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError, AttributeError):
            return None


def unavailable(error: Exception | None) -> ApiError:
    why = f": {type(error).__name__}" if error else ""
    return ApiError(
        503, f"the engine does not answer{why}", code="upstream_unavailable", headers={"retry-after": str(_RETRY_SECONDS)}
    )
