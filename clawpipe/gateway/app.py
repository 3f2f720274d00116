"""The HTTP application of the gateway: its routes, and nothing but them."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import aiohttp
from starlette.types import Receive, Scope, Send

from clawpipe.capture.records import Done, Feedback, Record
from clawpipe.gateway.attribution import safe_id
from clawpipe.gateway.chat import Chat, WhenFull, passed_on
from clawpipe.gateway.clients import Clients
from clawpipe.gateway.exchange import Exchange
from clawpipe.gateway.keys import Key
from clawpipe.gateway.metrics import Metrics
from clawpipe.gateway.recorder import CaptureError, Recorder
from clawpipe.gateway.upstream import CHAT, Upstream, unavailable
from clawpipe.json_types import JsonObject
from clawpipe.serving.errors import ApiError

log = logging.getLogger("clawpipe.gateway")
_PASSED = {"/v1/completions": "POST", "/v1/responses": "POST", "/v1/embeddings": "POST", "/v1/models": "GET"}
_MODEL = re.compile(r"/v1/models/(?!\.\.?(?:/|\Z))[A-Za-z0-9_.:@-]+(?:/[A-Za-z0-9_.:@-]+)?")  # a hub's names have two parts
_SESSION_DONE = re.compile(r"/v1/sessions/([^/]+)/done")
_HEALTH_SECONDS = 2.0  # for which an answer about the engine is kept
_THUMBS = {"up": 1.0, "down": -1.0}
_LONGEST_TEXT = 1 << 20

Handler = Callable[[Exchange, Key], Awaitable[None]]


class Gateway:
    """The application; an ASGI callable.

    Args:
        upstream: the engine.
        clients: who may ask.
        when_full: see `Chat`.
    """

    def __init__(self, upstream: Upstream, clients: Clients, recorder: Recorder, metrics: Metrics, when_full: WhenFull):
        self._upstream, self._clients, self._recorder, self._metrics = upstream, clients, recorder, metrics
        self.chat = Chat(upstream, recorder, metrics, when_full)
        self._healthy, self._asked = False, float("-inf")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        route = "none"
        try:
            if exchange.path == "/healthz":
                route = exchange.path
                await self._healthz(exchange)
            else:
                key = self._clients.known(exchange.headers.get("authorization", ""))
                route, handler = self._route(exchange)
                with (
                    self._clients.place(key) if exchange.method == "POST" else nullcontext(),
                    self._metrics.running.track_inprogress(),
                ):
                    await handler(exchange, key)
        except ApiError as error:
            await self._refuse(exchange, error)
        except Exception as error:
            log.exception("a request failed: %s", type(error).__name__)
            await self._refuse(exchange, ApiError(500, "the gateway failed; see its log"))
        finally:
            self._metrics.requests.labels(route, exchange.status or "gone").inc()

    async def _refuse(self, exchange: Exchange, error: ApiError) -> None:
        if not exchange.status:
            await exchange.refuse(error)

    def _route(self, exchange: Exchange) -> tuple[str, Handler]:
        """Return the name and the handler of a route.

        Raises:
            ApiError: 404 or 405.
        """
        path = exchange.path
        own: dict[str, tuple[str, Handler]] = {
            CHAT: ("POST", self.chat.answer),
            "/v1/feedback": ("POST", self._feedback),
            "/metrics": ("GET", self._metrics_text),
            **{passed: (method, self._pass) for passed, method in _PASSED.items()},
        }
        if _SESSION_DONE.fullmatch(path):
            own[path] = ("POST", self._done)
        elif _MODEL.fullmatch(path):
            own[path] = ("GET", self._pass)
        if path not in own:
            raise ApiError(404, f"there is no {path[:200]!r} here", code="not_found")
        method, handler = own[path]
        if exchange.method != method:
            raise ApiError(405, f"{path[:200]} takes {method}", code="method_not_allowed", headers={"allow": method})
        return "/v1/sessions/ID/done" if handler == self._done else "/v1/models/ID" if _MODEL.fullmatch(path) else path, handler

    async def _healthz(self, exchange: Exchange) -> None:
        if time.monotonic() - self._asked > _HEALTH_SECONDS:
            self._asked, self._healthy = time.monotonic(), await self._upstream.is_healthy()
        fault = self._recorder.fault
        state = {"status": "ok" if self._healthy else "the engine does not answer", "capture": fault or "ok"}
        await exchange.respond_json(state, 200 if self._healthy else 503)

    async def _metrics_text(self, exchange: Exchange, _: Key) -> None:
        await exchange.respond(200, self._metrics.text(), {"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _pass(self, exchange: Exchange, _: Key) -> None:
        """Pass a request of another route on, and its answer as it comes. These are not captured."""
        body = await exchange.body()
        await exchange.while_connected(self._passed(exchange, body))

    async def _passed(self, exchange: Exchange, body: bytes) -> None:
        reply = await self._upstream.ask(exchange.method, exchange.path, body if exchange.method == "POST" else None)
        async with reply:
            await exchange.start(reply.status if not 300 <= reply.status < 400 else 502, passed_on(reply))
            try:
                async for data in reply.content.iter_any():
                    await exchange.send(data)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise unavailable(error) from None
            await exchange.send(b"", more=False)
        if exchange.method == "POST":
            self._metrics.uncaptured.labels(exchange.path).inc()

    async def _feedback(self, exchange: Exchange, key: Key) -> None:
        feedback = feedback_of(await exchange.json(), key.name)
        await self._write(feedback)
        self._metrics.feedback.inc()
        await exchange.respond_json({"id": feedback.id, "object": "feedback"}, 201)

    async def _done(self, exchange: Exchange, key: Key) -> None:
        found = _SESSION_DONE.fullmatch(exchange.path)
        assert found is not None
        await exchange.body()
        session = safe_id(found[1])
        await self._write(Done(time.time(), key.name, session))
        await exchange.respond_json({"id": session, "object": "session", "done": True})

    async def _write(self, record: Record) -> None:
        try:
            await self._recorder.write(record)
        except CaptureError as error:
            raise ApiError(503, error.what, code="capture_unavailable", headers={"retry-after": "30"}) from None


def feedback_of(body: JsonObject, key: str) -> Feedback:
    """Return the opinion in a request.

    Raises:
        ApiError: 400, it names no turn, says nothing, or has a field that is wrong.
    """
    thumb, rating, turn = body.get("thumb"), body.get("rating"), body.get("turn")
    texts = {name: body.get(name) for name in ("response_id", "session_id", "correction", "comment")}
    known = {"thumb", "rating", "turn", *texts}
    _check("body", not body.keys() - known, f"only {', '.join(sorted(known))}")
    for name, value in texts.items():
        _check(name, value is None or (isinstance(value, str) and 0 < len(value) <= _LONGEST_TEXT), "a text")
    _check("turn", turn is None or (type(turn) is int and 1 <= turn < 2**31), "a number from 1 on")
    _check("thumb", thumb is None or thumb in ("up", "down"), "up or down")
    _check("rating", rating is None or (type(rating) in (int, float) and -1 <= rating <= 1), "a number from -1 to 1")
    _check("thumb", thumb is None or rating is None, "given without a rating")
    response, session = texts["response_id"], texts["session_id"]
    _check("response_id", bool(response) != bool(session and turn), "given, or session_id and turn")
    value = _THUMBS.get(thumb, rating) if isinstance(thumb, str) else rating
    _check("thumb", value is not None or bool(texts["correction"]), "given, or a rating or a correction")
    return Feedback(
        id=f"feedback-{uuid.uuid4().hex}",
        time=time.time(),
        key=key,
        response_id=response,
        session=safe_id(session) if session else None,
        turn=turn,
        value=None if value is None else float(value),
        correction=texts["correction"],
        comment=texts["comment"],
    )


def _check(field: str, holds: bool, what: str) -> None:
    if not holds:
        raise ApiError(400, f"{field}: must be {what}", field, "invalid_value")
