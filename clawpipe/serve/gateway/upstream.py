"""Send requests to the engine behind the gateway, and notice when another engine may have taken its place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import aiohttp
import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import ConfigError
from clawpipe.serve.gateway.capabilities import KIND_HEADER, Capabilities, OneToken, find_out
from clawpipe.serve.gateway.events import loaded
from clawpipe.serve.gateway.found_out import FoundOut
from clawpipe.serve.gateway.lifeline import Lifeline
from clawpipe.serve.gateway.secret import Secret
from clawpipe.serve.serving.errors import ApiError

_CONNECT_SECONDS, _SILENT_SECONDS = 5.0, 600.0
_PROBE_SECONDS = 15.0
_KEPT_SECONDS = 4.0  # of an idle connection; servers close theirs after 5 and more
_RETRY_SECONDS = 5
_CLOCK_SECONDS = 5.0  # a model's `created` that is this near to the time of the answer may be the clock, as vLLM's

_ANTHROPICS = "sk-ant-api"  # what keys of Anthropic's service begin with
CHAT, MODELS = "/v1/chat/completions", "/v1/models"
Reply = aiohttp.ClientResponse


class Upstream:
    """One engine that the gateway asks. Its address comes from the configuration and from nowhere else.

    Args:
        url: its address, with or without `/v1`.
        key: what it is asked with; empty for none.

    Attributes:
        found: what was found out of it.
        secret: the key, which no client may see.

    Raises:
        ConfigError: the address is not one of HTTP.
    """

    def __init__(self, url: str, key: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
            raise ConfigError(f"{url!r} is no address of an engine", "--upstream", "such as http://127.0.0.1:8000/v1")
        self.url, self.secret = url.rstrip("/").removesuffix("/v1"), Secret(key)
        self._headers = _credentials(key)
        self.found = FoundOut(self.url, self._probe)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        self._lifeline = Lifeline(parts.hostname, port, self._answers, lambda: self.found.forget("its connection ended"))
        self._created: dict[str, tuple[float, bool]] = {}  # by model: as the engine says it, and whether it may be its clock
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())

    async def close(self) -> None:
        await self._lifeline.close()
        if self._session:
            await self._session.close()

    async def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Ask the engine; the reply's body is still to be read. Redirects are not followed.

        Raises:
            ApiError: 503, it does not answer.
        """
        assert self._session is not None
        sent = {**(headers or {}), **({"content-type": "application/json"} if body is not None else {}), **self._headers}
        for attempt in (1, 2):
            try:
                return await self._session.request(method, self.url + path, data=body, headers=sent, allow_redirects=False)
            except aiohttp.ServerDisconnectedError as error:  # it closed a kept connection just as it was used
                self.found.forget("it closed a connection")
                if attempt == 2:
                    raise unavailable(error) from None
            except (aiohttp.ClientError, TimeoutError) as error:
                self.found.forget("it does not answer")
                raise unavailable(error) from None
        raise AssertionError("unreachable")

    async def is_healthy(self) -> bool:
        """Return whether the engine answers. One that does not, or whose models are new, may be another one afterwards."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                async with await self.ask("GET", MODELS) as reply:
                    if reply.status < 500:
                        self._look_at(loaded(await reply.read()))
                        return True
        except (ApiError, TimeoutError, aiohttp.ClientError):
            pass
        self.found.forget("it does not answer")
        return False

    async def capabilities(self, model: str) -> Capabilities:
        """Return what the engine says of its tokens with a model."""
        return await self.found.of(model)

    def _look_at(self, listed: object) -> None:
        """Compare when the models were created with what was said before."""
        for name, created in _created(listed).items():
            before, was_clock = self._created.get(name, (created, True))
            if created != before and not was_clock:
                self.found.forget("its models were created anew")
            self._created[name] = created, abs(created - time.time()) < _CLOCK_SECONDS

    async def _answers(self) -> bool:
        try:
            reply = await self.ask("GET", MODELS)
        except ApiError:
            return False
        reply.release()
        return reply.status < 500

    async def _probe(self, model: str) -> Capabilities | None:
        """Find out the capabilities with a model; None if the engine answered no request for it."""
        await self._lifeline.hold()
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                return await find_out(model, self._one_token)
        except (ApiError, TimeoutError, aiohttp.ClientError):
            return None

    async def _one_token(self, body: JsonObject) -> OneToken | None:
        """Send a request for one token; None if the engine refuses."""
        reply = await self.ask("POST", CHAT, orjson.dumps(body))
        data = await reply.read()
        if reply.status != 200:
            if reply.status >= 500 or reply.status == 429:
                raise unavailable(None)
            return None
        return OneToken.of(data, reply.headers.get(KIND_HEADER, ""))


def _credentials(key: str) -> dict[str, str]:
    """Return the headers that carry a key. Engines of Anthropic's interface take it in `x-api-key`, its service in that alone."""
    if not key:
        return {}
    bearer = {} if key.startswith(_ANTHROPICS) else {"authorization": f"Bearer {key}"}
    return bearer | {"x-api-key": key}


def _created(listed: object) -> dict[str, float]:
    """Return when each model of a list was created, in seconds since 1970."""
    models = listed.get("data") if isinstance(listed, dict) else None
    cards = [card for card in models if isinstance(card, dict)] if isinstance(models, list) else []
    return {str(card["id"]): card["created"] for card in cards if "id" in card and isinstance(card.get("created"), int | float)}


def unavailable(error: Exception | None) -> ApiError:
    why = f": {type(error).__name__}" if error else ""
    return ApiError(
        503, f"the engine does not answer{why}", code="upstream_unavailable", headers={"retry-after": str(_RETRY_SECONDS)}
    )
