"""An HTTP server on loopback that answers the programs of a shard's episodes with one policy, each by its episode's own key."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import orjson
import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.services.web import SameOrigin
from clawpipe.data.wire.dialects.kept import KeptResponses
from clawpipe.errors import ClawpipeError
from clawpipe.serve.gateway.attribution import attribute
from clawpipe.serve.programs.episode import Asked, Episode, Sampled
from clawpipe.serve.serving.access import keys_of
from clawpipe.serve.serving.answering import CHAT, TOKENIZED_AT_ONCE, Kind, read_body, response_of
from clawpipe.serve.serving.conversation import to_messages
from clawpipe.serve.serving.dialects import (
    COUNT,
    MESSAGES,
    RESPONSES,
    counted_translation,
    message_translation,
    prepare_cut,
    response_translation,
)
from clawpipe.serve.serving.engine_thread import EngineThread
from clawpipe.serve.serving.errors import ApiError, api_error, error_body
from clawpipe.serve.serving.policy import Prepared, ServedPolicy
from clawpipe.serve.serving.protocol import ChatRequest

CHATS = "/v1/chat/completions"
_WAITING = 1 << 16  # answers that may wait: no program is told to come back later
# Programs ask for as many tokens as their model is said to have; the night's settings say how long an answer may be.
_CHAT = replace(CHAT, prepare=prepare_cut)
_KEEP_SECONDS = 600  # a connection may wait while its program works


class Endpoint:
    """Answers the programs of episodes while it is open; they may ask from any process of this machine.

    Args:
        policy: that answers.
        grammars: whether it can hold answers to one.

    Attributes:
        port: where it listens.
        path: of a socket where it listens, too: a sandbox without a network sees its folder.
        failure: what the engine raised, if it did.
    """

    def __init__(self, policy: ServedPolicy, grammars: bool = True) -> None:
        self.policy, self._grammars = policy, grammars
        self.failure: BaseException | None = None
        served = policy.served
        self._by = Sampled(served.name, served.spec.policy_version)
        self._thread = EngineThread(policy.batch, _WAITING)
        self._tokenizing = asyncio.Semaphore(TOKENIZED_AT_ONCE)
        self._episodes: dict[str, Episode] = {}
        self._kept: dict[str, KeptResponses] = {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._listener.getsockname()[1]
        self._folder = tempfile.mkdtemp(prefix="clawpipe-", dir="/tmp")  # short, and where another user can reach it
        self.path = f"{self._folder}/endpoint"
        self._app = _app(self)
        self._server = uvicorn.Server(
            uvicorn.Config(SameOrigin(self._app), log_level="error", ws="none", lifespan="off", timeout_keep_alive=_KEEP_SECONDS)
        )
        self._runs = threading.Thread(target=self._run, name="endpoint")

    def __enter__(self) -> Endpoint:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        os.chmod(self.path, 0o666)
        os.chmod(self._folder, 0o711)
        self._runs.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._runs.join()
        self._listener.close()
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        del self._app.state.endpoint  # a cycle, in which the engine would wait for the garbage collector

    @property
    def card(self) -> JsonObject:
        """What programs are told of the model."""
        name = self.policy.served.name
        return {"id": name, "object": "model", "created": 0, "owned_by": "clawpipe", "context_length": self.policy.context}

    def admit(self, episode: Episode) -> None:
        """Take an episode's requests from now on."""
        self._kept[episode.key] = KeptResponses()
        self._episodes[episode.key] = episode

    async def answer(self, http: Request, kind: Kind, as_chat: Callable[[bytes], JsonObject]) -> Response:
        """Return the response to a request.

        Args:
            as_chat: returns the request that `kind` has parsed as a chat's.

        Raises:
            ApiError, ClawpipeError: it is refused.
        """
        episode, body = self.episode_of(http), await read_body(http)
        request = cast(ChatRequest, kind.parse(body))
        chat = as_chat(body)
        kind.check_size(self.policy, request)
        async with self._tokenizing:
            prepared = await asyncio.to_thread(self._prepared, kind, request, episode)
        name, prepared = episode.begin(prepared)
        whose = attribute(dict(http.headers), chat, episode.key, None)
        told = to_messages(request.messages), _tools_of(request)
        asked = Asked(name, chat, *told, prepared, whose, self._by, episode)
        choices = asked.watched(await asyncio.to_thread(self.policy.choices, prepared))
        job = self._thread.submit(choices, self._counted)
        return await response_of(kind.answer(self.policy, request, prepared), prepared.count, job, http, {})

    def _prepared(self, kind: Kind, request: ChatRequest, episode: Episode) -> Prepared:
        """Prepare a request; where it continues a turn, its prompt begins with that turn's tokens.

        Raises:
            ApiError: 400, it is wrong, too long, or asks for what the engine cannot do.
        """
        prepared = kind.prepare(self.policy, request, episode.key)
        if prepared.held and not self._grammars:
            raise ApiError(400, "this engine cannot hold answers to a grammar", prepared.held.field, "unsupported_parameter")
        known = episode.histories.prompt(self.policy.renderer(request), _tools_of(request), to_messages(request.messages))
        if not known or len(known) >= self.policy.context:
            return prepared
        most = min(prepared.sampling.max_new_tokens, self.policy.context - len(known))
        return replace(prepared, prompts=[known], sampling=replace(prepared.sampling, max_new_tokens=most))

    async def count(self, http: Request) -> int:
        """Return the number of tokens of a request's prompt. Raises as `answer`."""
        self.episode_of(http)
        request = counted_translation().parse(await read_body(http))
        return len(await asyncio.to_thread(self.policy.prompt, request))

    def episode_of(self, http: Request) -> Episode:
        """Return the episode whose key a request has. Raises ApiError (401) if it has none."""
        given = keys_of(http.headers.get("authorization", ""), http.headers.get("x-api-key", ""))
        for key in given:
            if key in self._episodes:
                return self._episodes[key]
        what = "this is no episode's key" if given else "no key was sent; send the episode's as a bearer token"
        raise ApiError(401, what, code="invalid_api_key", headers={"www-authenticate": "Bearer"})

    def note_refused(self, http: Request, error: ApiError) -> None:
        """Tell the episode whose key a request has, if any, that the request was refused."""
        with suppress(ApiError):
            self.episode_of(http).refused(error)

    def kept_of(self, http: Request) -> KeptResponses:
        """Return the responses that are kept for an episode. Raises as `episode_of`."""
        return self._kept[self.episode_of(http).key]

    def _counted(self, event: object, has_content: bool) -> None:
        if isinstance(event, BaseException):
            self.failure = self.failure or event

    def _run(self) -> None:
        async def serve() -> None:
            try:
                await self._server.serve([self._listener, self._socket])
            finally:
                await self._thread.close()

        asyncio.run(serve())


def _tools_of(request: ChatRequest) -> str:
    return orjson.dumps([tool.model_dump() for tool in request.offered]).decode()


def _app(endpoint: Endpoint) -> FastAPI:
    app = FastAPI(openapi_url=None)
    app.state.endpoint = endpoint
    for kind in (ApiError, ClawpipeError, HTTPException, Exception):
        app.add_exception_handler(kind, _refuse)
    app.include_router(_ROUTES)
    return app


# FastAPI remembers each route's function as long as the process lives. A worker opens an endpoint for each shard, so no function
# may hold one, and with it the caches of its engine.
_ROUTES = APIRouter()


def _of(http: Request) -> Endpoint:
    return http.app.state.endpoint


@_ROUTES.post(CHATS, response_model=None)
@_ROUTES.post("/chat/completions", response_model=None)  # of programs that are told an address without /v1
async def _chat(http: Request) -> Response:
    return await _of(http).answer(http, _CHAT, orjson.loads)


@_ROUTES.get("/v1/models")
async def _models(http: Request) -> JsonObject:
    endpoint = _of(http)
    endpoint.episode_of(http)
    return {"object": "list", "data": [endpoint.card]}


@_ROUTES.get("/v1/models/{name:path}")
async def _model(http: Request, name: str) -> JsonObject:
    """Any name is that of the policy, as in requests for answers."""
    endpoint = _of(http)
    endpoint.episode_of(http)
    return endpoint.card | {"id": name}


@_ROUTES.post(RESPONSES, response_model=None)
@_ROUTES.post("/responses", response_model=None)
async def _respond(http: Request) -> Response:
    return await _translated(http, response_translation(_of(http).kept_of(http)))


@_ROUTES.post(MESSAGES, response_model=None)
async def _message(http: Request) -> Response:
    return await _translated(http, message_translation())


@_ROUTES.post(COUNT)
async def _count(http: Request) -> JsonObject:
    return {"input_tokens": await _of(http).count(http)}


async def _translated(http: Request, translation: Any) -> Response:
    return await _of(http).answer(http, translation.kind, lambda _: translation.chat)


async def _refuse(http: Request, error: Exception) -> JSONResponse:
    answer = api_error(error)
    _of(http).note_refused(http, answer)
    return JSONResponse(error_body(http.url.path, answer), answer.status, answer.headers)
