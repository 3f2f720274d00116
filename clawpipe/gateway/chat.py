"""Forward chat requests to an engine with options that ask for tokens, capture each turn, and answer in the client's form."""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from contextlib import nullcontext
from dataclasses import replace

import orjson

from clawpipe.capture.alarms import REFUSED
from clawpipe.capture.records import Feedback, Turn
from clawpipe.capture.untaught import BY_CONSTRAINT, BY_CONTENT, holds_more_than_text
from clawpipe.config.registry import user_digest
from clawpipe.gateway.adapters import Following
from clawpipe.gateway.answering import Answering, WhenFull, count_answer, not_captured
from clawpipe.gateway.attribution import OWN_FIELDS, SESSION_HEADER, attribute
from clawpipe.gateway.capabilities import NO_TOKENS, UNKNOWN
from clawpipe.gateway.exchange import Exchange
from clawpipe.gateway.forms import Form
from clawpipe.gateway.keys import Key
from clawpipe.gateway.metrics import Metrics
from clawpipe.gateway.passing import pass_error, passed_on, sent_on
from clawpipe.gateway.recorder import Recorder
from clawpipe.gateway.turns import Asked
from clawpipe.gateway.upstream import CHAT, Reply, Upstream
from clawpipe.gateway.upstreams import Upstreams
from clawpipe.json_types import JsonObject
from clawpipe.serving.access import CLIENT, USER
from clawpipe.serving.errors import ApiError
from clawpipe.wire.dialects.fields import UntranslatableError, WrongRequestError
from clawpipe.wire.dialects.kept import KeptResponses
from clawpipe.wire.dialects.messages_in import as_sent
from clawpipe.wire.draw import is_constrained

log = logging.getLogger("clawpipe.gateway")
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
        per_user: whether users have models of their own at the engine, which is told a digest of who asks. A key that has an owner
            then speaks for nobody else.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        recorder: Recorder,
        metrics: Metrics,
        when_full: WhenFull,
        following: Following | None = None,
        per_user: bool = False,
    ) -> None:
        self._upstreams, self._recorder, self._metrics, self._when_full = upstreams, recorder, metrics, when_full
        self._following, self._per_user = following, per_user
        # By key, and id of turn or response: the response's id, and who gave it.
        self._given: dict[tuple[str, str], tuple[str, Upstream]] = {}
        self._kept = KeptResponses()
        self._answers = Answering(recorder, metrics, when_full, self._captured)

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
            own = (asked.writer.read.id if asked.writer else None) or turn.response_id
            for name in (turn.id, turn.response_id):
                self._given[turn.key, name] = turn.response_id if self._following else own, upstream
        while len(self._given) > _MOST_GIVEN:
            del self._given[next(iter(self._given))]

    def _captured(self, turn: Turn, asked: Asked) -> None:
        """Remember a turn that is on the disk, for feedback on it and for requests that go on with it by its id."""
        self._note(turn, asked)
        if turn.api == "responses" and turn.response_id:
            self._kept.keep(turn.key, turn.response_id, asked.given, [*asked.request["messages"], turn.answers[0].message])

    async def settle(self) -> None:
        """Wait for the records of clients that went away."""
        await self._answers.settle()

    async def _asked(self, form: Form, exchange: Exchange, key: Key, body: JsonObject) -> Asked:
        model, off = body.get("model"), not key.capture or exchange.headers.get(CAPTURE_HEADER, "").strip().lower() in _OFF
        uncaptured = "asked" if off else None
        try:
            request = form.as_chat(body, self._kept.of(key.name))
        except WrongRequestError as error:
            raise ApiError(400, str(error), error.where, "invalid_value") from None
        except UntranslatableError as error:
            if form.writer:
                raise ApiError(400, f"the gateway cannot ask an engine for this: {error}", code="unsupported_parameter") from None
            uncaptured, request = uncaptured or str(error), {**body, "messages": []}
        if not isinstance(model, str) or not 0 < len(model) <= _LONGEST_NAME:
            raise ApiError(400, "model: not the name of a model", "model", "invalid_value")
        own = {"user": key.owner} if self._per_user and key.owner else {}
        whose = attribute(exchange.headers, request | own, key.name, key.owner)
        if source := _makes_side(request, body):
            whose = replace(whose, turn_type="side", turn_type_from=source)
        given = dict(body)
        for name in OWN_FIELDS:
            body.pop(name, None)
            request.pop(name, None)
        captured = uncaptured is None
        if captured and self._recorder.fault and self._when_full == "refuse":
            raise not_captured(self._recorder.fault)
        place = _place(key, whose.session)
        upstream = self._upstreams.of(place)
        version = self._following.of(model, place) if self._following else None
        model = version.model if version else model
        capabilities = await upstream.capabilities(model) if captured and (form.questions or form.translated) else NO_TOKENS
        if form.translated and captured and capabilities.tokens and capabilities != UNKNOWN:
            form = form.translated
        writer = form.writer(given) if form.writer else None
        body = (as_sent(request) if writer else body) | {"model": model}
        turn = f"turn-{uuid.uuid4().hex}"
        asked = Asked(form, body, request, model, key, whose, uncaptured, upstream, capabilities, time.time(), turn, version)
        return replace(asked, given=given, writer=writer, query=exchange.query, headers=sent_on(exchange.headers))

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
            headers |= {"x-clawpipe-turn": asked.turn}
            if reply.status != 200:
                count_answer(asked, None, failed=reply.status >= 500)
                await pass_error(exchange, reply, asked.upstream.secret)
            elif (reply.content_type or "") == "text/event-stream":
                await self._answers.stream(exchange, asked, reply, headers)
            else:
                await self._answers.whole(exchange, asked, reply, headers)

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
        whose |= {USER: user_digest(asked.whose.user or "")} if self._per_user and asked.whose.user else {}
        headers, data = asked.headers | whose, orjson.dumps(body)
        reply = await asked.upstream.ask("POST", asked.form.path + asked.query, data, headers)
        if reply.status == 404 and asked.version:  # the engine was started anew
            reply.release()
            await asked.version.restore(asked.upstream)
            reply = await asked.upstream.ask("POST", asked.form.path + asked.query, data, headers)
        return reply


def _makes_side(request: JsonObject, body: JsonObject) -> str | None:
    """Return what of a request, or of its body as it came, makes its turn a side turn, whatever the client says of it; None if
    nothing does."""
    if holds_more_than_text(request["messages"]):
        return BY_CONTENT
    return BY_CONSTRAINT if is_constrained(request) or is_constrained(body) else None


def _place(key: Key, session: str) -> str:
    """Return a digest that names a session without revealing its owner."""
    return hashlib.sha256(f"{key.name}/{session}".encode()).hexdigest()[:32]
