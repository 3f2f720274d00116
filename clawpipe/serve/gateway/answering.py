"""Pass the engine's answer to the client, whole or as it comes, and record it before its end leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

import aiohttp

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.endings import Transport
from clawpipe.data.capture.records import Ending, Turn
from clawpipe.data.capture.untaught import faults_of
from clawpipe.data.wire.dialects.calls import UnheldError
from clawpipe.data.wire.dialects.writing import Event, Writer, event_text
from clawpipe.serve.gateway.answers import EVERYTHING, NO_JSON, Collected, stripped
from clawpipe.serve.gateway.events import DONE, event_of, events, is_done, loaded
from clawpipe.serve.gateway.exchange import Exchange
from clawpipe.serve.gateway.metrics import Metrics
from clawpipe.serve.gateway.passing import hidden_error
from clawpipe.serve.gateway.recorder import CaptureError, Recorder
from clawpipe.serve.gateway.turns import Asked, turn_of
from clawpipe.serve.gateway.upstream import Reply, unavailable
from clawpipe.serve.serving.errors import ApiError

log = logging.getLogger("clawpipe.gateway")
WhenFull = Literal["refuse", "serve"]
CAPTURED_HEADER = "x-clawpipe-captured"
OFF = {CAPTURED_HEADER: "off"}  # of an answer that was not to be captured


class Answering:
    """Passes answers on and records them.

    Args:
        when_full: see `clawpipe.serve.gateway.chat.Chat`.
        captured: is called with each turn that is on the disk.
        answered: is called with each whole response, before its client has it.
    """

    def __init__(
        self,
        recorder: Recorder,
        metrics: Metrics,
        when_full: WhenFull,
        captured: Callable[[Turn, Asked], None],
        answered: Callable[[Asked, Collected, JsonObject], None],
    ) -> None:
        self._recorder, self._metrics, self._when_full = recorder, metrics, when_full
        self._captured, self._answered = captured, answered
        self._records: set[asyncio.Task[str | None]] = set()  # those that are being written

    async def settle(self) -> None:
        """Wait for the records of clients that went away."""
        await asyncio.gather(*self._records, return_exceptions=True)

    async def whole(self, exchange: Exchange, asked: Asked, reply: Reply, headers: dict[str, str]) -> None:
        """Pass on an answer that is not streamed, with a header that says whether it was captured.

        Raises:
            ApiError: 503, the engine broke off, or the answer cannot be captured and is refused because of that.
        """
        try:
            data = await reply.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            count_answer(asked, None, failed=True)
            raise unavailable(error) from None
        collected, body = asked.form.collected(), loaded(data)
        if isinstance(body, dict):
            collected.add(body)
        else:
            collected.unheld = NO_JSON
        ending = collected.ending("marked")
        count_answer(asked, collected, failed=ending == "broken")
        if collected.failed and asked.upstream.secret.is_in(data.decode("utf-8", "replace")):
            raise hidden_error()
        why = await asyncio.shield(self._recording(asked, reply, collected, ending))
        headers |= OFF if asked.uncaptured else {CAPTURED_HEADER: "no" if why else "yes"}
        written = _written(asked.writer, asked, collected, body) if asked.writer else collected.response
        if written and not collected.says_failure:
            self._answered(asked, collected, written)
        if asked.writer:
            await exchange.respond_json(written, headers=headers)
        elif asked.uncaptured or not isinstance(body, dict):
            await exchange.respond(200, data, headers)
        else:
            await exchange.respond_json(stripped(body, asked.client_options), headers=headers)

    async def stream(self, exchange: Exchange, asked: Asked, reply: Reply, headers: dict[str, str]) -> None:
        """Pass on chunks as they come. The last one waits until the turn is on the disk. The head leaves before anybody knows
        whether the turn can be captured, and does not say so."""
        collected = asked.form.collected()
        headers |= {"cache-control": "no-cache"} | (OFF if asked.uncaptured else {})
        await exchange.start(200, headers)
        try:
            transport, last = await _passed(exchange, asked, reply, collected)
        except BaseException:
            self._record_left(asked, reply, collected)
            raise
        ending = collected.ending(transport)
        count_answer(asked, collected, failed=ending == "broken")
        try:
            await asyncio.shield(self._recording(asked, reply, collected, ending))
            written = asked.writer.whole() if asked.writer else collected.response
            if written and transport == "marked" and not collected.says_failure:
                self._answered(asked, collected, written)
        except ApiError as error:
            last = _error(asked, error)
        await exchange.send(last)
        await exchange.send(b"", more=False)

    def _record_left(self, asked: Asked, reply: Reply, collected: Collected) -> None:
        """Record the answer so far of a turn whose client disconnected."""
        ending = collected.ending("left")
        if ending == "complete":
            count_answer(asked, collected, failed=False)
        if asked.captured and not collected.is_empty:
            self._recording(asked, reply, collected, ending)

    def _recording(self, asked: Asked, reply: Reply, collected: Collected, ending: Ending) -> asyncio.Task[str | None]:
        """Begin to record a turn, which goes on when its client leaves. What it raises is logged, too."""
        task = asyncio.ensure_future(self._record(asked, reply, collected, ending))
        self._records.add(task)
        task.add_done_callback(self._recorded)
        return task

    def _recorded(self, task: asyncio.Task[str | None]) -> None:
        self._records.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.warning("a turn was not captured: %s", error)

    async def _record(self, asked: Asked, reply: Reply, collected: Collected, ending: Ending) -> str | None:
        """Record a turn. Returns None once it is on the disk, else why it is not, which is counted.

        Raises:
            ApiError: 503, it cannot be written, and `when_full` is `refuse`.
        """
        why = asked.uncaptured or collected.uncaptured() or await self._write(asked, reply, collected, ending)
        if why:
            self._metrics.uncaptured.labels(why).inc()
        return why

    async def _write(self, asked: Asked, reply: Reply, collected: Collected, ending: Ending) -> str | None:
        turn = turn_of(asked, reply, collected, ending)
        try:
            why = await self._recorder.write(turn)
        except CaptureError as error:
            if self._when_full == "serve":
                return "not written"
            self._metrics.uncaptured.labels("not written").inc()
            raise not_captured(error.what) from None
        if why is None:
            self._captured(turn, asked)
            self._metrics.turn(asked.whose, turn.no_tokens, faults_of(turn))
        return why


def count_answer(asked: Asked, collected: Collected | None, failed: bool) -> None:
    """Count an answer for the version that gave it."""
    if asked.version:
        asked.version.count_answer(collected, failed, asked.asker, asked.body)


def not_captured(why: str) -> ApiError:
    message = f"the turn cannot be captured, and is refused because of that: {why}"
    return ApiError(503, message, code="capture_unavailable", headers={"retry-after": "30"})


async def _passed(exchange: Exchange, asked: Asked, reply: Reply, collected: Collected) -> tuple[Transport, bytes]:
    """Pass events on up to the last one. Returns how the stream ended, and the last event, which is still to be sent: the engine's
    own, or an error if it gave none."""
    try:
        async for event in events(reply):
            if is_done(event):
                return "marked", _end(asked, collected)
            sent = _stripped_event(event, asked, collected)
            if collected.over:
                return "marked", event
            if sent:
                await exchange.send(sent)
    except (aiohttp.ClientError, TimeoutError):
        return "lost", _error(asked, unavailable(None))
    except UnheldError as error:
        return "lost", _error(asked, _unwritten(error))
    if collected.is_finished:  # Azure's and Gemini's servers may send no mark
        return "marked", _end(asked, collected)
    return "lost", _error(asked, _broken(asked, collected) if collected.failed else unavailable(None))


def _end(asked: Asked, collected: Collected) -> bytes:
    """Return what the client gets in place of the engine's mark, which follows a broken answer, too."""
    if not asked.writer:
        return DONE
    if collected.says_failure:
        return _error(asked, _broken(asked, collected))
    return _joined(asked.writer.end())


def _stripped_event(event: bytes, asked: Asked, collected: Collected) -> bytes | None:
    """Collect a chunk, and return what the client gets of it. What is no chunk passes as it is; a writer says an error at the
    end."""
    body = collected.add_event(event)
    options = asked.client_options
    if asked.writer:
        return _joined(asked.writer.add(body)) if isinstance(body, dict) and not collected.failed else None
    if collected.failed and asked.upstream.secret.is_in(event.decode("utf-8", "replace")):
        return _error(asked, hidden_error())
    if asked.uncaptured or options == EVERYTHING or not isinstance(body, dict):
        return event
    left = stripped(body, options)
    return None if left is None else event_of(left)


def _error(asked: Asked, error: ApiError) -> bytes:
    """Return an error in a stream, in the client's form."""
    if asked.writer:
        return _joined(asked.writer.fail(error.status, error.message, error.param, error.code))
    return event_of(error.body())


def _joined(events: list[Event]) -> bytes:
    return "".join(map(event_text, events)).encode()


def _written(writer: Writer, asked: Asked, collected: Collected, body: object) -> JsonObject:
    """Return a whole answer in the client's form. Raises ApiError (502) if it broke off, or holds none that can be written."""
    try:
        if not isinstance(body, dict) or (collected.is_empty and not collected.failed):
            raise UnheldError("no answer in it")
        if collected.says_failure:
            raise _broken(asked, collected)
        writer.add(body)
        writer.end()
    except UnheldError as error:
        raise _unwritten(error) from None
    return writer.whole()


def _broken(asked: Asked, collected: Collected) -> ApiError:
    """Return the error of an answer that broke off, with what the engine says of it, unless that holds its key."""
    why = collected.failure or ""
    if asked.upstream.secret.is_in(why):
        return hidden_error()
    return ApiError(502, f"the engine broke its answer off{': ' if why else ''}{why}", code="upstream_failed")


def _unwritten(error: UnheldError) -> ApiError:
    return ApiError(502, f"the engine's answer cannot be written: {error}", code="upstream_failed")
