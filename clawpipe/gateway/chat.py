"""Chat completions through the gateway: asked with questions for tokens, captured, and answered as the client asked."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
import uuid
from dataclasses import replace
from typing import Literal

import aiohttp
import orjson

from clawpipe.capture.records import Ending
from clawpipe.gateway.answers import Collected, Wishes, stripped, with_questions
from clawpipe.gateway.attribution import OWN_FIELDS, SESSION_HEADER, attribute
from clawpipe.gateway.events import DONE, event_of, events, is_done, loaded
from clawpipe.gateway.exchange import Exchange
from clawpipe.gateway.keys import Key
from clawpipe.gateway.metrics import Metrics
from clawpipe.gateway.recorder import CaptureError, Recorder
from clawpipe.gateway.turns import IDENTITY, Asked, turn_of
from clawpipe.gateway.upstream import CHAT, Abilities, Reply, Upstream, unavailable
from clawpipe.json_types import JsonObject
from clawpipe.serving.errors import ApiError

log = logging.getLogger("clawpipe.gateway")
WhenFull = Literal["refuse", "serve"]
CAPTURE_HEADER = "x-clawpipe-capture"
PASSED_ON = ("content-type", "retry-after", "x-request-id", *IDENTITY)  # headers of the engine that the client gets
_LONGEST_NAME = 256
_REFUSED = (400, 422)


class Chat:
    """Answers chat completions.

    Args:
        when_full: what happens while nothing can be captured: the request is refused before the engine is asked, or answered and
            counted.
    """

    def __init__(self, upstream: Upstream, recorder: Recorder, metrics: Metrics, when_full: WhenFull) -> None:
        self._upstream, self._recorder, self._metrics, self._when_full = upstream, recorder, metrics, when_full
        self._late: set[asyncio.Task[None]] = set()  # records of turns whose client went away

    async def answer(self, exchange: Exchange, key: Key) -> None:
        """Answer one request. Raises ApiError if it is refused, or the engine does not answer."""
        asked = await self._asked(exchange, key, await exchange.json())
        await exchange.while_connected(self._answer(exchange, asked))
        self._metrics.seconds.observe(time.time() - asked.began)

    async def settle(self) -> None:
        """Wait for the records of clients that went away."""
        await asyncio.gather(*self._late)

    async def _asked(self, exchange: Exchange, key: Key, body: JsonObject) -> Asked:
        messages, model = body.get("messages"), body.get("model")
        if not isinstance(messages, list) or not messages:
            raise ApiError(400, "messages: not a list of messages", "messages", "invalid_value")
        if not isinstance(model, str) or not 0 < len(model) <= _LONGEST_NAME:
            raise ApiError(400, "model: not the name of a model", "model", "invalid_value")
        whose = attribute(exchange.headers, body, key.name, key.owner)
        for name in OWN_FIELDS:
            body.pop(name, None)
        captured = key.capture and exchange.headers.get(CAPTURE_HEADER, "").strip().lower() not in ("off", "no", "0", "false")
        if captured and self._recorder.fault and self._when_full == "refuse":
            raise _not_captured(self._recorder.fault)
        abilities = await self._upstream.abilities(model) if captured else Abilities(tokens=False)
        return Asked(body, model, key, whose, captured, abilities, time.time(), f"turn-{uuid.uuid4().hex}")

    async def _answer(self, exchange: Exchange, asked: Asked) -> None:
        asked, reply = await self._ask(asked)
        async with reply:
            headers = passed_on(reply) | {"x-clawpipe-session": asked.whose.session}
            headers |= {"x-clawpipe-turn": asked.turn, "x-clawpipe-captured": "yes" if asked.captured else "off"}
            if reply.status != 200:
                await _pass_error(exchange, reply)
            elif (reply.content_type or "") == "text/event-stream":
                await self._stream(exchange, asked, reply, headers)
            else:
                await self._whole(exchange, asked, reply, headers)

    async def _ask(self, asked: Asked) -> tuple[Asked, Reply]:
        """Ask the engine with the questions for tokens; without them if it refuses them."""
        if asked.abilities.tokens:
            reply = await self._post(asked, with_questions(asked.body))
            if reply.status not in _REFUSED:
                return asked, reply
            reply.release()
        reply = await self._post(asked, asked.body)
        if asked.abilities.tokens and reply.status == 200:  # the questions were what it refused
            asked = replace(asked, abilities=Abilities(tokens=False))
            self._upstream.learn(asked.model, asked.abilities)
        return asked, reply

    async def _post(self, asked: Asked, body: JsonObject) -> Reply:
        """Ask the engine, which may keep a session on one version; it is told which session, and not whose."""
        name = hashlib.sha256(f"{asked.key.name}/{asked.whose.session}".encode()).hexdigest()[:32]
        return await self._upstream.ask("POST", CHAT, orjson.dumps(body), {SESSION_HEADER: name})

    async def _whole(self, exchange: Exchange, asked: Asked, reply: Reply, headers: dict[str, str]) -> None:
        try:
            data = await reply.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise unavailable(error) from None
        collected, body = Collected(), loaded(data)
        if not asked.captured or not isinstance(body, dict):
            self._uncaptured("asked" if not asked.captured else "no JSON")
            await exchange.respond(200, data, headers)
            return
        collected.add(body)
        await self._record(asked, reply, collected, "complete")
        await exchange.respond_json(stripped(body, asked.wishes), headers=headers)

    async def _stream(self, exchange: Exchange, asked: Asked, reply: Reply, headers: dict[str, str]) -> None:
        """Pass the chunks on as they come. The last one waits until the turn is on the disk."""
        collected, wishes, ending = Collected(), asked.wishes, "cancelled"
        await exchange.start(200, headers | {"cache-control": "no-cache"})
        try:
            async for event in events(reply):
                if is_done(event):
                    ending = "complete"
                    break
                if not asked.captured:
                    await exchange.send(event)
                elif sent := _stripped_event(event, collected, wishes):
                    await exchange.send(sent)
            ending = ending if ending == "complete" else "broken"
        except (aiohttp.ClientError, TimeoutError):
            ending = "broken"
        finally:
            if ending == "cancelled":
                self._record_late(asked, reply, collected)
        await self._end_stream(exchange, asked, reply, collected, ending)

    async def _end_stream(self, exchange: Exchange, asked: Asked, reply: Reply, collected: Collected, ending: Ending) -> None:
        last = DONE
        try:
            if asked.captured and not (ending == "broken" and collected.is_empty):
                await self._record(asked, reply, collected, ending)
            elif not asked.captured:
                self._uncaptured("asked")
        except ApiError as error:
            last = event_of(error.body())
        if ending == "broken":
            last = event_of(unavailable(None).body())
        await exchange.send(last)
        await exchange.send(b"", more=False)

    def _record_late(self, asked: Asked, reply: Reply, collected: Collected) -> None:
        """Record what there is of a turn whose client went away, which waits for nothing."""
        if asked.captured and not collected.is_empty:
            task = asyncio.ensure_future(self._record_quietly(asked, reply, collected))
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    async def _record_quietly(self, asked: Asked, reply: Reply, collected: Collected) -> None:
        try:
            await self._record(asked, reply, collected, "cancelled")
        except ApiError as error:
            log.warning("a cancelled turn was not captured: %s", error.message)

    async def _record(self, asked: Asked, reply: Reply, collected: Collected, ending: Ending) -> None:
        """Return when the turn is on the disk. Raises ApiError (503) if it cannot be, unless the policy is to serve."""
        if collected.is_empty:
            self._uncaptured("no answer in it")
            return
        turn = turn_of(asked, reply, collected, ending, self._upstream.url)
        try:
            kept = await self._recorder.write(turn)
        except CaptureError as error:
            self._uncaptured("not written")
            if self._when_full == "refuse":
                raise _not_captured(error.what) from None
            return
        if kept:
            self._metrics.turn(asked.whose, turn.no_tokens is None)
        else:
            self._uncaptured("forgotten")

    def _uncaptured(self, reason: str) -> None:
        self._metrics.uncaptured.labels(reason).inc()


def passed_on(reply: Reply) -> dict[str, str]:
    """Return the headers of the engine's reply that the client gets."""
    return {name: reply.headers[name] for name in PASSED_ON if name in reply.headers}


async def _pass_error(exchange: Exchange, reply: Reply) -> None:
    """Pass an error of the engine on, in OpenAI's form if it has another."""
    status = reply.status if reply.status >= 400 else 502
    body = loaded(await reply.read())
    headers = {name: value for name, value in passed_on(reply).items() if name != "content-type"}
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        await exchange.respond_json(body, status, headers)
    else:
        await exchange.refuse(ApiError(status, f"the engine answered with {reply.status}", headers=headers))


def _not_captured(why: str) -> ApiError:
    message = f"the turn cannot be captured, and is refused because of that: {why}"
    return ApiError(503, message, code="capture_unavailable", headers={"retry-after": "30"})


def _stripped_event(event: bytes, collected: Collected, wishes: Wishes) -> bytes | None:
    """Collect a chunk, and return what the client gets of it. What is no chunk passes as it is."""
    if not event.startswith(b"data:"):
        return event
    body = loaded(event[5:])
    if not isinstance(body, dict):
        return event
    collected.add(body)
    left = stripped(body, wishes)
    return None if left is None else event_of(left)
