"""Ask an engine in a way that it can answer: with or without tokens, by the client's own route or by a chat completion."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from dataclasses import replace

import aiohttp
import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.registry import user_digest
from clawpipe.data.capture.alarms import REFUSED
from clawpipe.data.wire.dialects.fields import without
from clawpipe.data.wire.dialects.messages_in import as_sent
from clawpipe.serve.gateway.attribution import SESSION_HEADER
from clawpipe.serve.gateway.capabilities import NO_TOKENS, UNKNOWN
from clawpipe.serve.gateway.events import loaded
from clawpipe.serve.gateway.keys import Key
from clawpipe.serve.gateway.metrics import Metrics
from clawpipe.serve.gateway.turns import Asked
from clawpipe.serve.gateway.upstream import Reply, Upstream
from clawpipe.serve.gateway.upstreams import Upstreams
from clawpipe.serve.serving.access import CLIENT, USER
from clawpipe.serve.serving.errors import ApiError

log = logging.getLogger("clawpipe.gateway")
LACKING = (404, 405, 501)  # statuses of an engine that does not have a route
_REFUSED = (400, 422)
_LIMIT = "max_completion_tokens"
_OF_LENGTH = re.compile(rb"context|length|tokens|too l(?:ong|arge)", re.IGNORECASE)


class Asking:
    """Asks the engine of a session, or another one if that does not answer. `per_user`: see `clawpipe.serve.gateway.chat.Chat`."""

    def __init__(self, upstreams: Upstreams, metrics: Metrics, per_user: bool = False) -> None:
        self._upstreams, self._metrics, self._per_user = upstreams, metrics, per_user

    async def ask(self, asked: Asked) -> tuple[Asked, Reply]:
        """Return the reply to a request, and the request as it was sent in the end.

        Raises:
            ApiError: 503, no engine answers; 400, the engine lacks the client's route, and no chat completion can say the same.
        """
        tried: list[Upstream] = []
        while True:
            try:
                return await self._ask(translated(asked) if _is_better_translated(asked) else asked)
            except ApiError:
                if asked.upstream in tried or not self._upstreams.mark_silent(asked.upstream):
                    raise
            tried.append(asked.upstream)
            other = self._upstreams.of(place_of(asked.key, asked.whose.session))
            asks = asked.captured and (asked.form.questions or asked.form.translated)
            asked = replace(asked, upstream=other, capabilities=await other.capabilities(asked.model) if asks else NO_TOKENS)

    async def _ask(self, asked: Asked) -> tuple[Asked, Reply]:
        """Ask by the request's own route; if the engine has none of that name, for a chat completion."""
        asked, reply = await self._ask_for_tokens(asked)
        if asked.form.translated is None or reply.status not in LACKING:
            return asked, reply
        if not asked.request["messages"]:
            await _check_known(asked, reply)
            return asked, reply
        reply.release()
        other, reply = await self._ask_for_tokens(translated(asked))
        if reply.status == 200:
            asked.upstream.found.lacking.add(asked.form.path)
        return other, reply

    async def _ask_for_tokens(self, asked: Asked) -> tuple[Asked, Reply]:
        """Send a request with the options that ask for tokens; if the engine refuses them, without them."""
        questions = asked.form.questions if asked.capabilities.tokens else None
        if questions:
            one, reply = await self._ask_for_less(asked, questions=True)
            if reply.status not in _REFUSED:
                return one, reply
            reply.release()
        asked, reply = await self._ask_for_less(asked, questions=False)
        if questions and reply.status == 200:  # the questions were what it refused
            log.warning("the engine at %s refuses to say tokens of a request that it answers without", asked.upstream.url)
            self._metrics.refused.inc()
            asked.upstream.found.doubt(asked.model)
            asked = replace(asked, capabilities=replace(NO_TOKENS, why=REFUSED))
        return asked, reply

    async def _ask_for_less(self, asked: Asked, questions: bool) -> tuple[Asked, Reply]:
        """Send a request; if its limit of tokens is more than the engine has left of its context, without that limit."""
        for one in _as_long_as_it_can(asked):
            body = one.form.questions(one.body) if questions and one.form.questions else one.body
            reply = await self._post(one, body)
            if reply.status not in _REFUSED or _LIMIT not in one.body or not one.writer or not await _is_about_length(reply):
                return one, reply
            reply.release()
        raise AssertionError("unreachable")

    async def _post(self, asked: Asked, body: JsonObject) -> Reply:
        """Send a request with digests of its session and of its key's name, so that the engine can keep the session on one version,
        and weigh what each client says of it."""
        whose = {SESSION_HEADER: place_of(asked.key, asked.whose.session), CLIENT: place_of(asked.key, "")}
        whose |= {USER: user_digest(asked.whose.user or "")} if self._per_user and asked.whose.user else {}
        headers, data = asked.headers | whose, orjson.dumps(body)
        reply = await asked.upstream.ask("POST", asked.form.path + asked.query, data, headers)
        if reply.status == 404 and asked.version:  # the engine was started anew
            reply.release()
            await asked.version.restore(asked.upstream)
            reply = await asked.upstream.ask("POST", asked.form.path + asked.query, data, headers)
        return reply


def translated(asked: Asked) -> Asked:
    """Return a request as that of a chat completion, whose answer is written in the client's form."""
    form = asked.form.translated
    assert form is not None
    assert form.writer is not None
    return replace(asked, form=form, writer=form.writer(asked.given), body=as_sent(asked.request) | {"model": asked.model})


def place_of(key: Key, session: str) -> str:
    """Return a digest that names a session without revealing its owner."""
    return hashlib.sha256(f"{key.name}/{session}".encode()).hexdigest()[:32]


def _is_better_translated(asked: Asked) -> bool:
    """Whether the engine says tokens of chat completions, or is known to have no other route."""
    if asked.form.translated is None or not asked.request["messages"]:
        return False
    says_tokens = asked.captured and asked.capabilities.tokens and asked.capabilities != UNKNOWN
    return says_tokens or asked.form.path in asked.upstream.found.lacking


def _as_long_as_it_can(asked: Asked) -> Iterator[Asked]:
    yield asked
    yield replace(asked, body=without(asked.body, (_LIMIT,)))


async def _is_about_length(reply: Reply) -> bool:
    """Whether a refusal speaks of how long something is. What is read of it can be read again."""
    try:
        return _OF_LENGTH.search(await reply.read()) is not None
    except (aiohttp.ClientError, TimeoutError):
        return False  # who passes the refusal on finds out


async def _check_known(asked: Asked, reply: Reply) -> None:
    """Raises ApiError (400) if the engine does not know the route of a request that no chat completion can express."""
    body = loaded(await reply.read())
    if not isinstance(body, dict) or not isinstance(body.get("error"), dict):
        raise unaskable(str(asked.uncaptured))


def unaskable(why: str) -> ApiError:
    """Return the error of a request for which the engine has no route, and which no chat completion can say."""
    return ApiError(400, f"the gateway cannot ask an engine for this: {why}", code="unsupported_parameter")
