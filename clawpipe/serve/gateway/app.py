"""The HTTP application of the gateway: its routes."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from functools import partial

import aiohttp
from starlette.types import Receive, Scope, Send

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.records import Done, Record
from clawpipe.data.capture.settings import PLAIN, SessionSettings
from clawpipe.data.wire.dialects.models import in_form, window_of
from clawpipe.serve.gateway.adapters import Following
from clawpipe.serve.gateway.answering import WhenFull
from clawpipe.serve.gateway.attribution import safe_id
from clawpipe.serve.gateway.chat import Chat
from clawpipe.serve.gateway.clients import Clients
from clawpipe.serve.gateway.counting import COUNT, Counting
from clawpipe.serve.gateway.events import loaded
from clawpipe.serve.gateway.exchange import Exchange
from clawpipe.serve.gateway.forms import FORMS
from clawpipe.serve.gateway.keys import Key
from clawpipe.serve.gateway.metrics import Metrics
from clawpipe.serve.gateway.passing import pass_error, passed_on, sent_on
from clawpipe.serve.gateway.recorder import UNWRITABLE, CaptureError, Recorder
from clawpipe.serve.gateway.upstream import Reply, unavailable
from clawpipe.serve.gateway.upstreams import Upstreams
from clawpipe.serve.serving.errors import ApiError, not_cancellable
from clawpipe.serve.serving.feedback import feedback_of

log = logging.getLogger("clawpipe.gateway")
_MODELS = "/v1/models"
_EMBEDDINGS = "/v1/embeddings"
_MODEL = re.compile(r"/v1/models/(?!\.\.?(?:/|\Z))[A-Za-z0-9_.:@-]+(?:/[A-Za-z0-9_.:@-]+)?")  # a hub's names have two parts
_SESSION_DONE = re.compile(r"/v1/sessions/([^/]+)/done")
_RESPONSE, _OF_RESPONSE = re.compile(r"/v1/responses/([^/]+)"), re.compile(r"/v1/responses/([^/]+)/(cancel|input_items)")
_NAMED = (
    (_OF_RESPONSE, "/v1/responses/ID/..."),
    (_SESSION_DONE, "/v1/sessions/ID/done"),
    (_RESPONSE, "/v1/responses/ID"),
    (_MODEL, "/v1/models/ID"),
)
_HEALTH_SECONDS = 2.0  # for which an answer about the engine is kept

Handler = Callable[[Exchange, Key], Awaitable[None]]


class Gateway:
    """The application; an ASGI callable.

    Args:
        upstreams: the engines.
        clients: who may ask.
        when_full, following, per_user, sessions: see `Chat`.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        clients: Clients,
        recorder: Recorder,
        metrics: Metrics,
        when_full: WhenFull,
        following: Following | None = None,
        per_user: bool = False,
        sessions: SessionSettings = PLAIN,
    ) -> None:
        self._upstreams, self._clients, self._recorder, self._metrics = upstreams, clients, recorder, metrics
        self._following, self.chat = following, Chat(upstreams, recorder, metrics, when_full, following, per_user, sessions)
        self._counting = Counting(upstreams, following)
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
                key = self._clients.known(exchange.headers.get("authorization", ""), exchange.headers.get("x-api-key", ""))
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
            **{form.path: ("POST", partial(self.chat.answer, form)) for form in FORMS},
            COUNT: ("POST", self._count),
            "/v1/feedback": ("POST", self._feedback),
            "/metrics": ("GET", self._metrics_text),
            _EMBEDDINGS: ("POST", self._pass),
            _MODELS: ("GET", self._models),
            **self._of_followed(),
        }
        if _SESSION_DONE.fullmatch(path):
            own[path] = ("POST", self._done)
        elif _RESPONSE.fullmatch(path) and exchange.method != "POST":  # nothing is posted to a response, so it is no id
            own[path] = ("DELETE", self._forget_response) if exchange.method == "DELETE" else ("GET", self._response)
        elif found := _OF_RESPONSE.fullmatch(path):
            own[path] = ("POST", self._cancel) if found[2] == "cancel" else ("GET", self._input_items)
        elif _MODEL.fullmatch(path):
            own.setdefault(path, ("GET", self._models))
        if path not in own:
            raise ApiError(404, f"there is no {path[:200]!r} here", code="not_found")
        method, handler = own[path]
        if exchange.method != method:
            raise ApiError(405, f"{path[:200]} takes {method}", code="method_not_allowed", headers={"allow": method})
        return _named(path), handler

    def _of_followed(self) -> dict[str, tuple[str, Handler]]:
        """Return the routes that name the followed model, which the engine knows by other names."""
        if not self._following:
            return {}
        return {f"{_MODELS}/{self._following.name}": ("GET", self._own_model)}

    async def _healthz(self, exchange: Exchange) -> None:
        if time.monotonic() - self._asked > _HEALTH_SECONDS:
            self._asked, self._healthy = time.monotonic(), await self._upstreams.is_healthy()
        fault = self._recorder.fault
        state = {"status": "ok" if self._healthy else "the engine does not answer", "capture": fault or "ok"}
        await exchange.respond_json(state, 200 if self._healthy else 503)

    async def _metrics_text(self, exchange: Exchange, _: Key) -> None:
        await exchange.respond(200, self._metrics.text(), {"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _pass(self, exchange: Exchange, _: Key) -> None:
        """Forward a request, and stream its answer, without capturing it."""
        body = await exchange.body()
        await exchange.while_connected(self._passed(exchange, body))

    async def _count(self, exchange: Exchange, _: Key) -> None:
        """Count the tokens of a prompt, which is not captured."""
        body = await exchange.json()
        await exchange.while_connected(self._counting.answer(exchange, body))
        if exchange.status == 200:
            self._metrics.uncaptured.labels(COUNT).inc()

    async def _models(self, exchange: Exchange, _: Key) -> None:
        """Describe what of the engine's models is asked for, in the client's form, and in a list the one that is followed."""
        reply = await self._upstreams.ask("GET", exchange.path + exchange.query, None, sent_on(exchange.headers))
        async with reply:
            body = await _object(reply) if reply.status == 200 else None
            if body is None:
                await pass_error(exchange, reply, self._upstreams.secret)
                return
        if self._following and exchange.path == _MODELS:
            cards = body["data"] if isinstance(body.get("data"), list) else []
            body |= {"data": [self._own_card() | _window(cards), *cards]}
        await exchange.respond_json(in_form(body, exchange.headers), headers=passed_on(reply, self._upstreams.secret))

    async def _own_model(self, exchange: Exchange, _: Key) -> None:
        """Describe the model that is followed."""
        await exchange.respond_json(in_form(self._own_card(), exchange.headers))

    def _own_card(self) -> JsonObject:
        assert self._following is not None
        return {"id": self._following.name, "object": "model", "created": 0, "owned_by": "clawpipe"}

    async def _passed(self, exchange: Exchange, body: bytes) -> None:
        reply = await self._upstreams.ask("POST", exchange.path + exchange.query, body, sent_on(exchange.headers))
        async with reply:
            if not 200 <= reply.status < 300:
                await pass_error(exchange, reply, self._upstreams.secret)
                return
            await exchange.start(reply.status, passed_on(reply, self._upstreams.secret))
            try:
                async for data in reply.content.iter_any():
                    await exchange.send(data)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise unavailable(error) from None
            await exchange.send(b"", more=False)
        self._metrics.uncaptured.labels(exchange.path).inc()

    async def _feedback(self, exchange: Exchange, key: Key) -> None:
        feedback = feedback_of(await exchange.json(), key.name, safe_id)
        await self._write(feedback)
        self._metrics.feedback.inc()
        await self.chat.tell(feedback)
        await exchange.respond_json({"id": feedback.id, "object": "feedback"}, 201)

    async def _done(self, exchange: Exchange, key: Key) -> None:
        found = _SESSION_DONE.fullmatch(exchange.path)
        assert found is not None
        await exchange.body()
        session = safe_id(found[1])
        await self._write(Done(time.time(), key.name, session))
        self.chat.end_session(key, session)
        await exchange.respond_json({"id": session, "object": "session", "done": True})

    async def _response(self, exchange: Exchange, key: Key) -> None:
        await exchange.respond_json(self.chat.response(key, exchange.path.rpartition("/")[2]))

    async def _input_items(self, exchange: Exchange, key: Key) -> None:
        await exchange.respond_json(self.chat.input_items(key, exchange.path.split("/")[3], exchange.query))

    async def _cancel(self, exchange: Exchange, key: Key) -> None:
        name = exchange.path.split("/")[3]
        self.chat.response(key, name)
        raise not_cancellable(name)

    async def _forget_response(self, exchange: Exchange, key: Key) -> None:
        name = exchange.path.rpartition("/")[2]
        self.chat.forget_response(key, name)
        await exchange.respond_json({"id": name, "object": "response", "deleted": True})

    async def _write(self, record: Record) -> None:
        try:
            why = await self._recorder.write(record)
        except CaptureError as error:
            raise ApiError(503, error.what, code="capture_unavailable", headers={"retry-after": "30"}) from None
        if why == UNWRITABLE:
            raise ApiError(400, "it holds what cannot be stored", code="invalid_value")


async def _object(reply: Reply) -> JsonObject | None:
    """Return an engine's reply; None if it is no object. Raises ApiError (503) if the engine breaks off."""
    try:
        body = loaded(await reply.read())
    except (aiohttp.ClientError, TimeoutError) as error:
        raise unavailable(error) from None
    return body if isinstance(body, dict) else None


def _window(cards: Sequence[object]) -> JsonObject:
    """Return the field that says the window of an engine's model, which its adapters share; none if the engine does not say it."""
    found = (window_of(card) for card in cards if isinstance(card, dict))
    return next(({"max_model_len": window} for window in found if window), {})


def _named(path: str) -> str:
    """Return the name of a route, in which an id is `ID`."""
    return next((name for pattern, name in _NAMED if pattern.fullmatch(path)), path)
