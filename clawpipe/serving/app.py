"""The HTTP application: authentication, limits, and routing of answers."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clawpipe.errors import BusyError, ClawpipeError
from clawpipe.json_types import JsonObject
from clawpipe.serving.choice import Ending
from clawpipe.serving.completions import Answer
from clawpipe.serving.conversation import message_body
from clawpipe.serving.engine_thread import EngineThread, Event, Job
from clawpipe.serving.errors import ApiError, cancelled_error
from clawpipe.serving.fields import SamplingFields
from clawpipe.serving.policy import Served, ServedPolicy
from clawpipe.serving.protocol import parse_request

MAX_BODY = 2 * 1024 * 1024  # bytes of a request
BODY_SECONDS = 30.0
READ_AT_ONCE, TOKENISED_AT_ONCE = 128, 2  # requests that may be in memory, and on a core, at a time


def create_app(policy: ServedPolicy, key: str, thread: EngineThread) -> ASGIApp:
    """Return the application. Every route except /healthz asks for `key` as a bearer token. On shutdown `thread` is closed."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await thread.close()

    app = FastAPI(openapi_url=None, lifespan=lifespan)
    app.add_exception_handler(ApiError, _refuse)
    app.add_exception_handler(ClawpipeError, _refuse)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(Exception, _refuse)
    _add_health(app, policy)
    _add_models(app, policy, key)
    _add_chat(app, policy, key, thread)
    return Identity(app, policy.served)


class Identity:
    """Adds headers to every response that identify the model."""

    def __init__(self, app: ASGIApp, served: Served) -> None:
        self._app = app
        self._headers = {
            "x-clawpipe-model-version": served.version,
            "x-clawpipe-digest": served.digest,
            "x-clawpipe-policy-version": served.spec.policy_version,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        await self._app(scope, receive, send_named)


class EventStream(StreamingResponse):
    """A job's events as a stream; the job is cancelled when the response ends, for whatever reason."""

    def __init__(self, chunks: AsyncIterator[str], job: Job, headers: dict[str, str]) -> None:
        super().__init__(chunks, media_type="text/event-stream", headers={"cache-control": "no-cache"} | headers)
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._job.cancel()


def _add_health(app: FastAPI, policy: ServedPolicy) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok", "model": policy.served.name, **_identity(policy.served)}


def _add_models(app: FastAPI, policy: ServedPolicy, key: str) -> None:
    card = _model_card(policy, int(time.time()))

    @app.get("/v1/models", dependencies=[_key_needed(key)])
    async def models() -> JsonObject:
        return {"object": "list", "data": [card]}

    @app.get("/v1/models/{name}", dependencies=[_key_needed(key)])
    async def model(name: str) -> JsonObject:
        _check_model(policy, name)
        return card


def _add_chat(app: FastAPI, policy: ServedPolicy, key: str, thread: EngineThread) -> None:
    places = Places()

    @app.post("/v1/chat/completions", dependencies=[_key_needed(key)], response_model=None)
    async def chat(http: Request) -> Response:
        with places.taken():
            request = parse_request(await _body(http))
            _check_model(policy, request.model)
            policy.check_size(request)
            async with places.tokenising:
                prepared = await asyncio.to_thread(policy.prepare, request, _client(http, request))
                choices = await asyncio.to_thread(policy.choices, prepared)
        answer = Answer(policy, request, prepared)
        job = thread.submit(choices)
        if request.stream:
            return EventStream(answer.chunks(job.events()), job, answer.headers)
        return _whole(answer, prepared.count, await _collect(job, http))


class Places:
    """Limits how many requests may be read and tokenized at a time."""

    def __init__(self) -> None:
        self.tokenising = asyncio.Semaphore(TOKENISED_AT_ONCE)
        self._read = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take a place for the block. Raises BusyError if all are taken."""
        if self._read >= READ_AT_ONCE:
            raise BusyError(f"{READ_AT_ONCE} requests are being read already")
        self._read += 1
        try:
            yield
        finally:
            self._read -= 1


def _whole(answer: Answer, count: int, events: list[Event]) -> Response:
    if sum(isinstance(event.part, Ending) for event in events) < count:
        raise cancelled_error()
    return JSONResponse(answer.body(events), headers=answer.headers)


async def _collect(job: Job, http: Request) -> list[Event]:
    """Collect all events of a job, or fewer if the client disconnects first."""

    async def watch() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass
        job.cancel()

    watcher = asyncio.create_task(watch())
    try:
        return [event async for event in job.events()]
    finally:
        watcher.cancel()
        job.cancel()


async def _body(http: Request) -> bytes:
    """Read the request's body, counting bytes as they come, since a client's stated length proves nothing."""
    body, close = bytearray(), {"connection": "close"}
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in http.stream():
                body += part
                if len(body) > MAX_BODY:
                    raise ApiError(413, f"the request is larger than {MAX_BODY} bytes", code="request_too_large", headers=close)
    except TimeoutError:
        raise ApiError(408, f"the request took more than {BODY_SECONDS:.0f} s to arrive", headers=close) from None
    return bytes(body)


def _key_needed(key: str) -> Any:
    async def check(http: Request) -> None:
        scheme, _, given = http.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), key.encode()):
            what = "a wrong API key was sent" if given else "no API key was sent; send it as a bearer token"
            raise ApiError(401, what, code="invalid_api_key", headers={"www-authenticate": "Bearer"})

    return Depends(check)


def _client(http: Request, request: SamplingFields) -> str:
    """Return whose request it is: clients take turns."""
    return http.headers.get("x-session-id") or request.session_id or request.user or ""


def _check_model(policy: ServedPolicy, name: str) -> None:
    if name != policy.served.name:
        raise ApiError(404, f"the model {name!r} is not served here; {policy.served.name!r} is", "model", "model_not_found")


def _identity(served: Served) -> dict[str, str]:
    return {"version": served.version, "digest": served.digest, "policy_version": served.spec.policy_version}


def _model_card(policy: ServedPolicy, created: int) -> JsonObject:
    """Return OpenAI's model object with the model's exact identity, and its episodes' tools and preamble in request form."""
    served = policy.served
    return {
        "id": served.name,
        "object": "model",
        "created": created,
        "owned_by": "clawpipe",
        **_identity(served),
        "context_length": policy.context,
        "tools": [tool.as_function() for tool in served.tools],
        "preamble": [message_body(message) for message in served.preamble],
    }


async def _refuse(_: Request, error: Exception) -> JSONResponse:
    match error:
        case ApiError():
            answer = error
        case ClawpipeError():
            answer = ApiError.of(error)
        case HTTPException():
            answer = ApiError(error.status_code, str(error.detail), headers=error.headers)
        case _:
            answer = ApiError(500, "the server failed; see its log")
    return answer.response()
