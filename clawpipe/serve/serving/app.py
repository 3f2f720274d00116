"""The HTTP application: routes, authentication, headers, errors and the model's identity."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.services.requests import REQUEST_ID, id_headers, request_id
from clawpipe.data.wire.dialects.kept import KeptResponses
from clawpipe.data.wire.dialects.models import in_form
from clawpipe.errors import ClawpipeError
from clawpipe.serve.serving.access import keys_of
from clawpipe.serve.serving.answering import CHAT, TEXT, Answering, read_object
from clawpipe.serve.serving.conversation import message_body
from clawpipe.serve.serving.dialects import (
    COUNT,
    MESSAGES,
    RESPONSES,
    counted_translation,
    message_translation,
    response_translation,
)
from clawpipe.serve.serving.errors import ApiError, api_error, error_body, input_page, not_cancellable, not_kept
from clawpipe.serve.serving.feedback import feedback_of
from clawpipe.serve.serving.follow import Follower
from clawpipe.serve.serving.generate import GENERATE, generate_kind
from clawpipe.serve.serving.live import Live
from clawpipe.serve.serving.metrics import Metrics
from clawpipe.serve.serving.other_models import OtherModels
from clawpipe.serve.serving.own_models import OwnModels
from clawpipe.serve.serving.policy import ServedPolicy
from clawpipe.serve.serving.served import Served
from clawpipe.serve.serving.versions import Versions


def create_app(
    versions: Versions[Live],
    key: str,
    follower: Follower[Live] | None = None,
    believes_clients: bool = False,
    own_models: OwnModels | None = None,
    others: OtherModels | None = None,
) -> ASGIApp:
    """Return the application. Every route except /healthz asks for `key` as a bearer token. On shutdown the versions are closed.

    Args:
        versions: what is served.
        key: the key that clients send.
        follower: changes the version in service while the application runs.
        believes_clients, own_models, others: see `Answering`.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with _running(follower):
            yield
        await versions.close()

    app = FastAPI(openapi_url=None, lifespan=lifespan)
    app.add_exception_handler(ApiError, _refuse)
    app.add_exception_handler(ClawpipeError, _refuse)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(Exception, _refuse)
    metrics, answering = Metrics(versions), Answering(versions, believes_clients, own_models, others)
    _add_health(app, versions)
    _add_models(app, versions, key, answering, others or OtherModels())
    _add_metrics(app, metrics, key)
    _add_answers(app, versions, key, answering)
    return Identity(app, versions, metrics)


@asynccontextmanager
async def _running(follower: Follower[Live] | None) -> AsyncIterator[None]:
    """Run the follower during the block."""
    task = asyncio.create_task(follower.run()) if follower else None
    try:
        yield
    finally:
        if follower and task:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await follower.close()


class Identity:
    """Adds headers to every response that identify the model (the one that answered, else the one in service) and the request.
    Counts responses. A request for the head of a page that can be read is answered as that page, without its body."""

    def __init__(self, app: ASGIApp, versions: Versions[Live], metrics: Metrics) -> None:
        self._app, self._versions, self._metrics = app, versions, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope.get("method") == "HEAD"
        named = request_id(Headers(scope=scope).get(REQUEST_ID)) if scope["type"] == "http" else ""

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(id_headers(scope["path"], named))
                for name, value in self._versions.current.headers.items():
                    headers.setdefault(name, value)
                self._metrics.responded(scope["path"], message["status"])
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"} if is_head else scope, receive, send_named)


def _add_health(app: FastAPI, versions: Versions[Live]) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        served = versions.current.policy.served
        return {"status": "ok", "model": served.name, **_identity(served)}


def _add_models(app: FastAPI, versions: Versions[Live], key: str, answering: Answering, others: OtherModels) -> None:
    created = int(time.time())

    @app.get("/v1/models", dependencies=[_key_needed(key)])
    async def models(http: Request) -> JsonObject:
        policy = versions.current.policy
        cards = [_model_card(policy, created), *(_named_card(name, created) for name in await others.in_service(policy))]
        return in_form({"object": "list", "data": cards}, http.headers)

    @app.get("/v1/models/{name:path}", dependencies=[_key_needed(key)])
    async def model(http: Request, name: str) -> JsonObject:
        answering.check_model(name)
        policy = versions.current.policy
        if name not in others.names:
            return in_form(_model_card(policy, created), http.headers)
        await others.of(name, policy)
        return in_form(_named_card(name, created), http.headers)


def _add_metrics(app: FastAPI, metrics: Metrics, key: str) -> None:
    @app.get("/metrics", dependencies=[_key_needed(key)])
    async def read() -> Response:
        return Response(metrics.text(), media_type=metrics.media_type)


def _add_answers(app: FastAPI, versions: Versions[Live], key: str, answering: Answering) -> None:
    @app.post("/v1/chat/completions", dependencies=[_key_needed(key)], response_model=None)
    async def chat(http: Request) -> Response:
        return await answering.respond(http, CHAT)

    @app.post("/v1/feedback", dependencies=[_key_needed(key)], status_code=201)
    async def feedback(http: Request) -> JsonObject:
        feedback = feedback_of(await read_object(http), "")
        value = -1.0 if feedback.value is None else feedback.value  # a correction says that the answer was wrong
        if not versions.rate(feedback.response_id or "", value):
            raise ApiError(404, "no such response is waiting for feedback", "response_id", "not_found")
        return {"id": feedback.id, "object": "feedback"}

    @app.post("/v1/completions", dependencies=[_key_needed(key)], response_model=None)
    async def text(http: Request) -> Response:
        return await answering.respond(http, TEXT)

    @app.post(GENERATE, dependencies=[_key_needed(key)], response_model=None)
    async def generate(http: Request) -> Response:
        return await answering.respond(http, generate_kind(versions.current.policy.served.name))

    _add_dialects(app, answering, key)


def _add_dialects(app: FastAPI, answering: Answering, key: str) -> None:
    kept = KeptResponses()

    @app.post(RESPONSES, dependencies=[_key_needed(key)], response_model=None)
    async def respond(http: Request) -> Response:
        return await answering.respond(http, response_translation(kept).kind)

    @app.get(f"{RESPONSES}/{{name}}", dependencies=[_key_needed(key)])
    async def response(name: str) -> JsonObject:
        if found := kept.get("", name):
            return found
        raise not_kept(name)

    @app.get(f"{RESPONSES}/{{name}}/input_items", dependencies=[_key_needed(key)])
    async def items(http: Request, name: str) -> JsonObject:
        return input_page(kept.input_items("", name), name, http.url.query)

    @app.post(f"{RESPONSES}/{{name}}/cancel", dependencies=[_key_needed(key)])
    async def cancel(name: str) -> JsonObject:
        raise not_cancellable(name) if kept.get("", name) else not_kept(name)

    @app.post(f"{RESPONSES}/{{name}}", dependencies=[_key_needed(key)])
    async def nothing(http: Request) -> JsonObject:
        raise ApiError(404, f"nothing is posted to {http.url.path[:200]!r} here", code="not_found")

    @app.delete(f"{RESPONSES}/{{name}}", dependencies=[_key_needed(key)])
    async def forget(name: str) -> JsonObject:
        if kept.forget("", name):
            return {"id": name, "object": "response", "deleted": True}
        raise not_kept(name)

    @app.post(MESSAGES, dependencies=[_key_needed(key)], response_model=None)
    async def message(http: Request) -> Response:
        return await answering.respond(http, message_translation().kind)

    @app.post(COUNT, dependencies=[_key_needed(key)])
    async def count(http: Request) -> JsonObject:
        return {"input_tokens": await answering.count(http, counted_translation().parse)}


def _key_needed(key: str) -> Any:
    async def check(http: Request) -> None:
        given = keys_of(http.headers.get("authorization", ""), http.headers.get("x-api-key", ""))
        if not any(hmac.compare_digest(one.encode("latin-1"), key.encode()) for one in given):
            what = "a wrong API key was sent" if given else "no API key was sent; send it as a bearer token"
            raise ApiError(401, what, code="invalid_api_key", headers={"www-authenticate": "Bearer"})

    return Depends(check)


def _identity(served: Served) -> dict[str, str]:
    return {"version": served.version, "digest": served.digest, "policy_version": served.spec.policy_version}


def _named_card(name: str, created: int) -> JsonObject:
    return {"id": name, "object": "model", "created": created, "owned_by": "clawpipe"}


def _model_card(policy: ServedPolicy, created: int) -> JsonObject:
    """Return OpenAI's model object with the model's exact identity, and its episodes' tools and preamble in request form."""
    served = policy.served
    return _named_card(served.name, created) | {
        **_identity(served),
        "context_length": policy.context,
        "tools": [tool.as_function() for tool in served.tools],
        "preamble": [message_body(message) for message in served.preamble],
        "environment": served.environment,
    }


async def _refuse(http: Request, error: Exception) -> JSONResponse:
    answer = api_error(error)
    return JSONResponse(error_body(http.url.path, answer), answer.status, answer.headers)
