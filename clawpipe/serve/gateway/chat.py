"""Forward chat requests to an engine with options that ask for tokens, capture each turn, and answer in the client's form."""

from __future__ import annotations

import logging
import time
import uuid
from contextlib import nullcontext
from dataclasses import replace

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.records import Feedback, Turn
from clawpipe.data.capture.settings import PLAIN, SessionSettings
from clawpipe.data.capture.untaught import BY_CONSTRAINT, BY_CONTENT, holds_more_than_text
from clawpipe.data.wire.dialects.fields import UntranslatableError, WrongRequestError
from clawpipe.data.wire.dialects.kept import KeptResponses
from clawpipe.data.wire.dialects.responses_in import messages_of
from clawpipe.data.wire.draw import is_constrained
from clawpipe.serve.gateway.adapters import Following
from clawpipe.serve.gateway.answering import Answering, WhenFull, count_answer, not_captured
from clawpipe.serve.gateway.answers import Collected
from clawpipe.serve.gateway.asking import Asking, place_of
from clawpipe.serve.gateway.attribution import OWN_FIELDS, attribute
from clawpipe.serve.gateway.capabilities import NO_TOKENS
from clawpipe.serve.gateway.exchange import Exchange
from clawpipe.serve.gateway.forms import Form
from clawpipe.serve.gateway.keys import Key
from clawpipe.serve.gateway.metrics import Metrics
from clawpipe.serve.gateway.passing import pass_error, passed_on, sent_on
from clawpipe.serve.gateway.recorder import Recorder
from clawpipe.serve.gateway.turns import Asked
from clawpipe.serve.gateway.upstream import CHAT, Upstream
from clawpipe.serve.gateway.upstreams import Upstreams
from clawpipe.serve.serving.errors import ApiError, input_page, not_kept, wrong_request

log = logging.getLogger("clawpipe.gateway")
CAPTURE_HEADER = "x-clawpipe-capture"
FEEDBACK = "/v1/feedback"
_LONGEST_NAME = 256
_MOST_GIVEN = 20_000
_OFF = ("off", "no", "0", "false")


class Chat:
    """Handle requests for a turn.

    Args:
        when_full: the handling of requests that cannot be captured: refuse them before the engine is asked, or answer and count
            them.
        following: chooses the version that answers, where the gateway follows an alias.
        per_user: whether users have models of their own at the engine, which is told a digest of who asks. A key that has an owner
            then speaks for nobody else.
        sessions: which turns are main turns.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        recorder: Recorder,
        metrics: Metrics,
        when_full: WhenFull,
        following: Following | None = None,
        per_user: bool = False,
        sessions: SessionSettings = PLAIN,
    ) -> None:
        self._upstreams, self._recorder, self._metrics, self._when_full = upstreams, recorder, metrics, when_full
        self._sessions = sessions
        self._following, self._per_user = following, per_user
        # By key, and id of turn or response: the response's id, and who gave it.
        self._given: dict[tuple[str, str], tuple[str, Upstream]] = {}
        self._kept = KeptResponses()
        self._asking = Asking(upstreams, metrics, per_user)
        self._answers = Answering(recorder, metrics, when_full, self._note, self._keep)

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
            self._following.end_session(place_of(key, session))

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

    def _keep(self, asked: Asked, collected: Collected, whole: JsonObject) -> None:
        """Keep a response for requests that go on with it, or ask for it again."""
        messages, name = asked.request["messages"], whole.get("id")
        if asked.form.api == "responses" and isinstance(name, str) and messages and collected.uncaptured() is None:
            # What was written may hold an id of a call that the engine did not give.
            said = messages_of(whole["output"]) if asked.writer else [collected.answers(with_tokens=False)[0].message]
            self._kept.keep(asked.key.name, name, asked.given, [*messages, *said], whole)

    def response(self, key: Key, name: str) -> JsonObject:
        """Return a response that a key was given. Raises ApiError (404) if it is not kept."""
        if found := self._kept.get(key.name, name):
            return found
        raise not_kept(name)

    def input_items(self, key: Key, name: str, query: str) -> JsonObject:
        """Return a page of what a response was asked with. Raises ApiError: 404, it is not kept; 400, no such page."""
        return input_page(self._kept.input_items(key.name, name), name, query)

    def forget_response(self, key: Key, name: str) -> None:
        """Forget a response that a key was given. Raises ApiError (404) if it is not kept."""
        if not self._kept.forget(key.name, name):
            raise not_kept(name)

    async def settle(self) -> None:
        """Wait for the records of clients that went away."""
        await self._answers.settle()

    async def _asked(self, form: Form, exchange: Exchange, key: Key, body: JsonObject) -> Asked:
        model, off = body.get("model"), not key.capture or exchange.headers.get(CAPTURE_HEADER, "").strip().lower() in _OFF
        uncaptured = "asked" if off else None
        try:
            request = form.as_chat(body, self._kept.of(key.name))
        except WrongRequestError as error:
            raise wrong_request(error) from None
        except UntranslatableError as error:
            uncaptured, request = uncaptured or str(error), {**body, "messages": []}
        if not isinstance(model, str) or not 0 < len(model) <= _LONGEST_NAME:
            raise ApiError(400, "model: not the name of a model", "model", "invalid_value")
        own = {"user": key.owner} if self._per_user and key.owner else {}
        whose = attribute(exchange.headers, request | own, key.name, key.owner, self._sessions)
        if source := _makes_side(request, body):
            whose = replace(whose, turn_type="side", turn_type_from=source)
        given = dict(body)
        for name in OWN_FIELDS:
            body.pop(name, None)
            request.pop(name, None)
        captured = uncaptured is None
        if captured and self._recorder.fault and self._when_full == "refuse":
            raise not_captured(self._recorder.fault)
        place = place_of(key, whose.session)
        upstream = self._upstreams.of(place)
        version = self._following.of(model, place) if self._following else None
        model = version.model if version else model
        capabilities = await upstream.capabilities(model) if captured and (form.questions or form.translated) else NO_TOKENS
        body, turn = body | {"model": model}, f"turn-{uuid.uuid4().hex}"
        asked = Asked(form, body, request, model, key, whose, uncaptured, upstream, capabilities, time.time(), turn, version)
        return replace(asked, given=given, query=exchange.query, headers=sent_on(exchange.headers))

    async def _answer(self, exchange: Exchange, asked: Asked) -> None:
        with asked.version.answering() if asked.version else nullcontext():
            asked = await self._answered(exchange, asked)
        if asked.version and self._following and asked.form.path == CHAT:
            self._following.shadow_request(asked.version, asked.upstream, asked.body, asked.asker)
        if asked.whose.done:
            self.end_session(asked.key, asked.whose.session)

    async def _answered(self, exchange: Exchange, asked: Asked) -> Asked:
        """Answer a request, and return it as the engine was asked."""
        asked, reply = await self._asking.ask(asked)
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
        return asked


def _makes_side(request: JsonObject, body: JsonObject) -> str | None:
    """Return what of a request, or of its body as it came, makes its turn a side turn, whatever the client says of it; None if
    nothing does."""
    if holds_more_than_text(request["messages"]):
        return BY_CONTENT
    return BY_CONSTRAINT if is_constrained(request) or is_constrained(body) else None
