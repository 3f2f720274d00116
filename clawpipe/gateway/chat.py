"""Forward chat requests to an engine with options that ask for tokens, capture each turn, and answer in the client's form."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
import uuid
from contextlib import nullcontext
from dataclasses import replace
from typing import Literal

import aiohttp
import orjson

from clawpipe.capture.alarms import REFUSED
from clawpipe.capture.records import Ending, Feedback, Turn
from clawpipe.gateway.adapters import Following
from clawpipe.gateway.answers import EVERYTHING, ClientOptions, Collected, stripped
from clawpipe.gateway.attribution import OWN_FIELDS, SESSION_HEADER, attribute
from clawpipe.gateway.capabilities import NO_TOKENS
from clawpipe.gateway.events import DONE, data_of, event_of, events, is_done, loaded
from clawpipe.gateway.exchange import Exchange
from clawpipe.gateway.forms import Form
from clawpipe.gateway.keys import Key
from clawpipe.gateway.metrics import Metrics
from clawpipe.gateway.passing import pass_error, passed_on, sent_on
from clawpipe.gateway.recorder import CaptureError, Recorder
from clawpipe.gateway.responses import Conversations, UncapturedError, conversation
from clawpipe.gateway.turns import Asked, turn_of
from clawpipe.gateway.upstream import CHAT, Reply, Upstream, unavailable
from clawpipe.gateway.upstreams import Upstreams
from clawpipe.json_types import JsonObject
from clawpipe.serving.access import CLIENT
from clawpipe.serving.errors import ApiError

log = logging.getLogger("clawpipe.gateway")
WhenFull = Literal["refuse", "serve"]
CAPTURE_HEADER = "x-clawpipe-capture"
FEEDBACK = "/v1/feedback"
_LONGEST_NAME = 256
_MOST_GIVEN = 20_000
_REFUSED = (400, 422)
_OFF = ("off", "no", "0", "false")


class Chat:
    """Handle requests for a turn.

    Args:
        when_full: the handling of requests that cannot be captured: refuse them before the engine is asked, or answer and count
            them.
        following: chooses the version that answers, where the gateway follows an alias.
    """

    def __init__(
        self, upstreams: Upstreams, recorder: Recorder, metrics: Metrics, when_full: WhenFull, following: Following | None = None
    ) -> None:
        self._upstreams, self._recorder, self._metrics, self._when_full = upstreams, recorder, metrics, when_full
        self._following = following
        # By key, and id of turn or response: the response's id, and who gave it.
        self._given: dict[tuple[str, str], tuple[str, Upstream]] = {}
        self._conversations = Conversations()
        self._cancelled: set[asyncio.Task[None]] = set()  # records of turns whose client disconnected

    async def answer(self, form: Form, exchange: Exchange, key: Key) -> None:
        """Answer one request. Raises ApiError if it is refused, or the engine does not answer."""
        asked = await self._asked(form, exchange, key, await exchange.json())
        await exchange.while_connected(self._answer(exchange, asked))
        self._metrics.seconds.observe(time.time() - asked.began)

    async def tell(self, feedback: Feedback) -> None:
        """Count feedback on an answer for its version, or pass it on to `clawpipe serve`: bad feedback can end the version's
        service."""
        given = self._given.get((feedback.key, feedback.response_id or ""))
        if given is None:
            return
        response, upstream = given
        rating = -1.0 if feedback.value is None else feedback.value  # a correction says that the answer was wrong
        if self._following:
            self._following.rate(f"{feedback.key}/{response}", rating)
            return
        try:
            reply = await upstream.ask("POST", FEEDBACK, orjson.dumps({"response_id": response, "rating": rating}))
            reply.release()
        except ApiError as error:
            log.warning("feedback was not passed on to the engine: %s", error.message)

    def end_session(self, key: Key, session: str) -> None:
        """Forget a session's version: if it goes on, it gets the one in service."""
        if self._following:
            self._following.end_session(_place(key, session))

    def _note(self, turn: Turn, asked: Asked) -> None:
        """Remember which version gave the answer, in case feedback follows."""
        upstream = asked.upstream
        if asked.version and self._following and turn.response_id:
            self._following.record_response(f"{turn.key}/{turn.response_id}", asked.version, asked.asker)
        if (turn.policy_version or turn.model_version) and turn.response_id:
            for name in (turn.id, turn.response_id):
                self._given[turn.key, name] = turn.response_id, upstream
        while len(self._given) > _MOST_GIVEN:
            del self._given[next(iter(self._given))]

    async def settle(self) -> None:
        """Wait for the records of clients that went away."""
        await asyncio.gather(*self._cancelled)

    async def _asked(self, form: Form, exchange: Exchange, key: Key, body: JsonObject) -> Asked:
        model, off = body.get("model"), not key.capture or exchange.headers.get(CAPTURE_HEADER, "").strip().lower() in _OFF
        uncaptured = "asked" if off else None
        try:
            request = form.as_chat(body, self._conversations.of(key.name))
        except UncapturedError as error:
            uncaptured, request = uncaptured or str(error), {**body, "messages": []}
        if not isinstance(model, str) or not 0 < len(model) <= _LONGEST_NAME:
            raise ApiError(400, "model: not the name of a model", "model", "invalid_value")
        whose = attribute(exchange.headers, request, key.name, key.owner)
        for name in OWN_FIELDS:
            body.pop(name, None)
            request.pop(name, None)
        captured = uncaptured is None
        if captured and self._recorder.fault and self._when_full == "refuse":
            raise _not_captured(self._recorder.fault)
        place = _place(key, whose.session)
        upstream = self._upstreams.of(place)
        version = self._following.of(model, place) if self._following else None
        if version:
            model = body["model"] = version.model
        capabilities = await upstream.capabilities(model) if captured and form.questions else NO_TOKENS
        turn = f"turn-{uuid.uuid4().hex}"
        asked = Asked(form, body, request, model, key, whose, uncaptured, upstream, capabilities, time.time(), turn, version)
        return replace(asked, query=exchange.query, headers=sent_on(exchange.headers))

    async def _answer(self, exchange: Exchange, asked: Asked) -> None:
        with asked.version.answering() if asked.version else nullcontext():
            await self._answered(exchange, asked)
        if asked.version and self._following and asked.form.path == CHAT:
            self._following.shadow_request(asked.version, asked.upstream, asked.body, asked.asker)
        if asked.whose.done:
            self.end_session(asked.key, asked.whose.session)

    async def _answered(self, exchange: Exchange, asked: Asked) -> None:
        asked, reply = await self._ask_one_that_answers(asked)
        async with reply:
            headers = passed_on(reply, asked.upstream.secret) | {"x-clawpipe-session": asked.whose.session}
            headers |= asked.version.headers if asked.version else {}
            headers |= {"x-clawpipe-turn": asked.turn, "x-clawpipe-captured": "yes" if asked.captured else "off"}
            if reply.status != 200:
                _ended(asked, None, failed=reply.status >= 500)
                await pass_error(exchange, reply, asked.upstream.secret)
            elif (reply.content_type or "") == "text/event-stream":
                await self._stream(exchange, asked, reply, headers)
            else:
                await self._whole(exchange, asked, reply, headers)

    async def _ask_one_that_answers(self, asked: Asked) -> tuple[Asked, Reply]:
        """Send the request to the session's engine, or to another one if that does not answer. Raises ApiError (503) if none
        does."""
        tried: list[Upstream] = []
        while True:
            try:
                return await self._ask(asked)
            except ApiError:
                if asked.upstream in tried or not self._upstreams.mark_silent(asked.upstream):
                    raise
            tried.append(asked.upstream)
            other = self._upstreams.of(_place(asked.key, asked.whose.session))
            asks = asked.captured and asked.form.questions
            asked = replace(asked, upstream=other, capabilities=await other.capabilities(asked.model) if asks else NO_TOKENS)

    async def _ask(self, asked: Asked) -> tuple[Asked, Reply]:
        """Send the request with the options that ask for tokens; if the engine refuses them, without them."""
        if asked.capabilities.tokens and asked.form.questions:
            reply = await self._post(asked, asked.form.questions(asked.body))
            if reply.status not in _REFUSED:
                return asked, reply
            reply.release()
        reply = await self._post(asked, asked.body)
        if asked.capabilities.tokens and reply.status == 200:  # the questions were what it refused
            log.warning("the engine at %s refuses to say tokens of a request that it answers without", asked.upstream.url)
            self._metrics.refused.inc()
            asked.upstream.found.doubt(asked.model)
            asked = replace(asked, capabilities=replace(NO_TOKENS, why=REFUSED))
        return asked, reply

    async def _post(self, asked: Asked, body: JsonObject) -> Reply:
        """Send a request with digests of its session and of its key's name, so that the engine can keep the session on one version,
        and weigh what each client says of it."""
        whose = {SESSION_HEADER: _place(asked.key, asked.whose.session), CLIENT: _place(asked.key, "")}
        headers, data = asked.headers | whose, orjson.dumps(body)
        reply = await asked.upstream.ask("POST", asked.form.path + asked.query, data, headers)
        if reply.status == 404 and asked.version:  # the engine was started anew
            reply.release()
            await asked.version.restore(asked.upstream)
            reply = await asked.upstream.ask("POST", asked.form.path + asked.query, data, headers)
        return reply

    async def _whole(self, exchange: Exchange, asked: Asked, reply: Reply, headers: dict[str, str]) -> None:
        try:
            data = await reply.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise unavailable(error) from None
        collected, body = asked.form.collected(), loaded(data)
        if isinstance(body, dict):
            collected.add(body)
        _ended(asked, collected, failed=not isinstance(body, dict))
        if asked.uncaptured or not isinstance(body, dict):
            self._uncaptured(asked.uncaptured or "no JSON")
            await exchange.respond(200, data, headers)
            return
        await self._record(asked, reply, collected, "complete")
        await exchange.respond_json(stripped(body, asked.client_options), headers=headers)

    async def _stream(self, exchange: Exchange, asked: Asked, reply: Reply, headers: dict[str, str]) -> None:
        """Pass the chunks on as they come. The last one waits until the turn is on the disk."""
        collected, client_options, ending, last = asked.form.collected(), asked.client_options, "cancelled", DONE
        await exchange.start(200, headers | {"cache-control": "no-cache"})
        try:
            async for event in events(reply):
                if is_done(event):
                    ending = "complete"
                    break
                sent = event if asked.uncaptured and asked.form.questions else _stripped_event(event, collected, client_options)
                if collected.over:
                    ending, last = "complete", event
                    break
                if sent:
                    await exchange.send(sent)
            ending = ending if ending == "complete" else "broken"
        except (aiohttp.ClientError, TimeoutError):
            ending = "broken"
        finally:
            if ending == "cancelled":
                self._record_cancelled(asked, reply, collected)
        _ended(asked, collected, failed=ending == "broken")
        await self._end_stream(exchange, asked, reply, collected, ending, last)

    async def _end_stream(
        self, exchange: Exchange, asked: Asked, reply: Reply, collected: Collected, ending: Ending, last: bytes
    ) -> None:
        try:
            if asked.captured and not (ending == "broken" and collected.is_empty):
                await self._record(asked, reply, collected, ending)
            elif asked.uncaptured:
                self._uncaptured(asked.uncaptured)
        except ApiError as error:
            last = event_of(error.body())
        if ending == "broken":
            last = event_of(unavailable(None).body())
        await exchange.send(last)
        await exchange.send(b"", more=False)

    def _record_cancelled(self, asked: Asked, reply: Reply, collected: Collected) -> None:
        """Record the answer so far of a turn whose client disconnected, in a task of its own."""
        if asked.captured and not collected.is_empty:
            task = asyncio.ensure_future(self._record_quietly(asked, reply, collected))
            self._cancelled.add(task)
            task.add_done_callback(self._cancelled.discard)

    async def _record_quietly(self, asked: Asked, reply: Reply, collected: Collected) -> None:
        try:
            await self._record(asked, reply, collected, "cancelled")
        except ApiError as error:
            log.warning("a cancelled turn was not captured: %s", error.message)

    async def _record(self, asked: Asked, reply: Reply, collected: Collected, ending: Ending) -> None:
        """Record a turn, and return once it is on the disk. Raises ApiError (503) if that fails and `when_full` is `refuse`."""
        if collected.is_empty:
            self._uncaptured("no answer in it")
            return
        turn = turn_of(asked, reply, collected, ending)
        try:
            kept = await self._recorder.write(turn)
        except CaptureError as error:
            self._uncaptured("not written")
            if self._when_full == "refuse":
                raise _not_captured(error.what) from None
            return
        if kept:
            self._note(turn, asked)
            if turn.api == "responses" and turn.response_id and asked.body.get("store") is not False:
                messages = conversation(asked.request["messages"], turn.answers[0].message)
                self._conversations.keep(turn.key, turn.response_id, messages)
            self._metrics.turn(asked.whose, turn.no_tokens)
        else:
            self._uncaptured("forgotten")

    def _uncaptured(self, reason: str) -> None:
        self._metrics.uncaptured.labels(reason).inc()


def _place(key: Key, session: str) -> str:
    """Return a digest that names a session without revealing its owner."""
    return hashlib.sha256(f"{key.name}/{session}".encode()).hexdigest()[:32]


def _ended(asked: Asked, collected: Collected | None, failed: bool) -> None:
    if asked.version:
        asked.version.count_answer(collected, failed, asked.asker, asked.body)


def _not_captured(why: str) -> ApiError:
    message = f"the turn cannot be captured, and is refused because of that: {why}"
    return ApiError(503, message, code="capture_unavailable", headers={"retry-after": "30"})


def _stripped_event(event: bytes, collected: Collected, client_options: ClientOptions) -> bytes | None:
    """Collect a chunk, and return what the client gets of it. What is no chunk passes as it is."""
    body = loaded(data_of(event))
    if not isinstance(body, dict):
        return event
    collected.add(body)
    if client_options == EVERYTHING:
        return event
    left = stripped(body, client_options)
    return None if left is None else event_of(left)
