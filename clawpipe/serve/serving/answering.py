"""Answer a request: read it, prepare it, let its answers join the engine's batch, and send them, as a whole or as a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.registry import user_digest
from clawpipe.core.services.requests import Body, EncodingError
from clawpipe.errors import BusyError, ClawpipeError
from clawpipe.serve.serving.access import CLIENT, USER
from clawpipe.serve.serving.choice import Ending
from clawpipe.serve.serving.completions import Answer, TextAnswer
from clawpipe.serve.serving.engine_thread import Event, Job
from clawpipe.serve.serving.errors import ApiError, cancelled_error, unreadable
from clawpipe.serve.serving.evidence import Asker
from clawpipe.serve.serving.fields import SamplingFields
from clawpipe.serve.serving.live import Live
from clawpipe.serve.serving.other_models import OtherModels
from clawpipe.serve.serving.own_models import OwnModel, OwnModels
from clawpipe.serve.serving.policy import Prepared, ServedPolicy
from clawpipe.serve.serving.protocol import ChatRequest, parse_request, parse_text_request
from clawpipe.serve.serving.versions import Versions

MAX_BODY = 2 * 1024 * 1024  # bytes of a request
BODY_SECONDS = 30.0
READ_AT_ONCE, TOKENIZED_AT_ONCE = 128, 2  # requests that may be in memory, and on a core, at a time
_SHADOW = "shadow"  # the client that asks for answers which nobody sees
SESSION, SESSION_DONE = "x-session-id", "x-session-done"


@dataclass(frozen=True)
class Kind:
    """A kind of request: the functions that parse it, check its size, prepare it and answer it."""

    parse: Callable[[bytes], SamplingFields]
    check_size: Callable[[ServedPolicy, Any], None]
    prepare: Callable[[ServedPolicy, Any, str], Prepared]
    answer: Callable[[ServedPolicy, Any, Prepared], Answer]


CHAT = Kind(parse_request, ServedPolicy.check_size, ServedPolicy.prepare, Answer)
TEXT = Kind(parse_text_request, ServedPolicy.check_text_size, ServedPolicy.prepare_text, TextAnswer)


class Answering:
    """Answers requests with the loaded versions.

    Args:
        believes_clients: whether the headers `CLIENT` and `USER` tell who asks: a gateway that alone has the server's key sends
            them.
        own_models: the models of single users, if they may have some.
        others: further models on the same base, which requests name, if there are some.
    """

    def __init__(
        self,
        versions: Versions[Live],
        believes_clients: bool = False,
        own_models: OwnModels | None = None,
        others: OtherModels | None = None,
    ) -> None:
        self._versions, self._places, self._believes_clients = versions, Places(), believes_clients
        self._own_models, self._others = own_models, others or OtherModels()
        self._shadows: set[asyncio.Task[None]] = set()  # answers that nobody sees

    async def respond(self, http: Request, kind: Kind) -> Response:
        """Return the response to a request.

        Raises:
            ApiError, ClawpipeError: the request is refused.
        """
        with self._places.taken():
            request = kind.parse(await read_body(http))
            self.check_model(request.model)
            session = http.headers.get(SESSION) or request.session_id or ""
            asker = Asker(http.headers.get(CLIENT, "") if self._believes_clients else "", session)
            live = self._versions.of_session(session)
            with live.preparing():
                own = await self._own_model(http, request, live)
                kind.check_size(live.policy, request)
                async with self._places.tokenizing:
                    prepared = await asyncio.to_thread(kind.prepare, live.policy, request, session or request.user or "")
                    choices = await asyncio.to_thread(live.policy.choices, prepared, own and own.adapter)
                job = live.submit(choices, asker, request.limit, is_own=own is None)
            if own is None and (shadow := self._versions.shadow_of(live)):
                self._answer_unseen(shadow, kind, request, asker)
        if http.headers.get(SESSION_DONE, "").lower() in ("1", "true", "yes"):
            self._versions.end_session(session)
        answer = kind.answer(live.policy, request, prepared)
        if own is None:
            self._versions.record_response(answer.id, live, asker)
        headers = live.headers | (own.headers if own else {}) | answer.headers | live.pace
        return await response_of(answer, prepared.count, job, http, headers)

    async def _own_model(self, http: Request, request: SamplingFields, live: Live) -> OwnModel | None:
        """Return the model that is asked for or of the user who asks; None if the shared one answers."""
        if request.model in self._others.names:
            return await self._others.of(request.model, live.policy)
        if self._own_models is None:
            return None
        named = user_digest(request.user) if request.user else ""
        return await self._own_models.of(http.headers.get(USER, "") if self._believes_clients else named, live.policy)

    async def count(self, http: Request, parse: Callable[[bytes], ChatRequest]) -> int:
        """Return the number of tokens of a request's prompt.

        Raises:
            ApiError, ClawpipeError: the request is refused.
        """
        with self._places.taken():
            request, policy = parse(await read_body(http)), self._versions.current.policy
            self.check_model(request.model)
            policy.check_size(request)
            async with self._places.tokenizing:
                return len(await asyncio.to_thread(policy.prompt, request))

    def check_model(self, name: str) -> None:
        """Raises ApiError (404) if this is not the name of a served model."""
        served = self._versions.current.policy.served.name
        if name != served and name not in self._others.names:
            raise ApiError(404, f"the model {name!r} is not served here; {served!r} is", "model", "model_not_found")

    def _answer_unseen(self, shadow: Live, kind: Kind, request: SamplingFields, asker: Asker) -> None:
        """Let the version on trial answer a request as well. The client does not wait for this answer; it is only counted."""
        task = asyncio.create_task(_drain(shadow, kind, request, asker, self._places.tokenizing))
        self._shadows.add(task)
        task.add_done_callback(self._shadows.discard)


async def response_of(answer: Answer, count: int, job: Job, http: Request, headers: dict[str, str]) -> Response:
    """Return the response to a request: an answer of `count` choices, as a whole or as a stream."""
    if answer.streams:
        return EventStream(answer.chunks(job.events()), job, headers)
    return _whole(answer, count, await _collect(job, http), headers)


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


class Places:
    """Limits how many requests may be read and tokenized at a time."""

    def __init__(self) -> None:
        self.tokenizing = asyncio.Semaphore(TOKENIZED_AT_ONCE)
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


async def _drain(shadow: Live, kind: Kind, request: SamplingFields, asker: Asker, tokenizing: asyncio.Semaphore) -> None:
    with suppress(ApiError, ClawpipeError):  # no place for it, or a request that another version may refuse
        with shadow.preparing():
            async with tokenizing:
                prepared = await asyncio.to_thread(kind.prepare, shadow.policy, request, _SHADOW)
                choices = await asyncio.to_thread(shadow.policy.choices, prepared)
            job = shadow.submit(choices, asker, request.limit)
        async for _ in job.events():
            pass


def _whole(answer: Answer, count: int, events: list[Event], headers: dict[str, str]) -> Response:
    if sum(isinstance(event.part, Ending) for event in events) < count:
        raise cancelled_error()
    return JSONResponse(answer.as_sent(events), headers=headers)


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


async def read_object(http: Request) -> JsonObject:
    """Read a request's body. Raises ApiError if it is no JSON object."""
    try:
        body = json.loads(await read_body(http))
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is no JSON", code="invalid_json") from None
    if not isinstance(body, dict):
        raise ApiError(400, "the body is no JSON object", code="invalid_json")
    return body


async def read_body(http: Request) -> bytes:
    """Read the request's body, decompressed, counting bytes as they come, since a client's stated length proves nothing."""
    close = {"connection": "close"}
    try:
        body = Body(http.headers.get("content-encoding", ""), MAX_BODY)
        async with asyncio.timeout(BODY_SECONDS):
            async for part in http.stream():
                body.add(part)
        return body.whole()
    except EncodingError as error:
        raise unreadable(error) from None
    except TimeoutError:
        raise ApiError(408, f"the request took more than {BODY_SECONDS:.0f} s to arrive", headers=close) from None
