"""`/v1/responses` and `/v1/messages`: their requests become those of chat completions, whose answers are written in their form.

All that a chat completion may ask for holds here, too. Other than there, a limit that does not fit the context is cut to what is
left of it, as the services do it; the answer says that it was cut.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.fields import UnknownResponseError, UntranslatableError, WrongRequestError
from clawpipe.data.wire.dialects.kept import KeptResponses
from clawpipe.data.wire.dialects.messages_in import chat_of_messages, counted_chat
from clawpipe.data.wire.dialects.messages_out import MessageWriter
from clawpipe.data.wire.dialects.responses_in import chat_of_response, messages_of
from clawpipe.data.wire.dialects.responses_out import ResponseWriter
from clawpipe.data.wire.dialects.writing import Writer, event_text
from clawpipe.serve.serving.answering import Kind
from clawpipe.serve.serving.choice import Ending
from clawpipe.serve.serving.completions import Answer
from clawpipe.serve.serving.engine_thread import Event
from clawpipe.serve.serving.errors import ApiError, api_error, failed_error, wrong_request
from clawpipe.serve.serving.policy import Prepared, ServedPolicy
from clawpipe.serve.serving.protocol import ChatRequest, parse_request

_NO_NAMES: Mapping[str, str] = {}
MESSAGES, RESPONSES, COUNT = "/v1/messages", "/v1/responses", "/v1/messages/count_tokens"


class TranslatedAnswer(Answer):
    """Builds the answer in a dialect.

    Args:
        writer: writes it.
        ended: is called with the whole answer.
    """

    def __init__(
        self,
        policy: ServedPolicy,
        request: ChatRequest,
        prepared: Prepared,
        writer: Writer,
        ended: Callable[[JsonObject], None] = lambda _: None,
    ) -> None:
        super().__init__(policy, request, prepared)
        self.id, self._writer, self._ended = writer.id, writer, ended
        writer.read.prompt_tokens = prepared.prompt_tokens

    def body(self, events: Sequence[Event]) -> JsonObject:
        self._writer.add(super().body(events))
        self._writer.end()
        self._ended(whole := self._writer.whole())
        return whole

    async def chunks(self, events: AsyncIterator[Event]) -> AsyncIterator[str]:
        try:
            async for part in self._parts(events):
                for event in self._writer.add(part):
                    yield event_text(event)
            last = self._writer.end()
            self._ended(self._writer.whole())
            for event in last:
                yield event_text(event)
        except Exception as error:
            known = api_error(error)
            told = failed_error() if known.status >= 500 and not isinstance(error, ApiError) else known
            for event in self._writer.fail(told.status, told.message, told.param, told.code):
                yield event_text(event)
            if told.status == 500:
                raise

    def _more(self, ending: Ending) -> JsonObject:
        return super()._more(ending) | {"stop_reason": ending.stop}


class Translation:
    """One request of a dialect, and its answer.

    Args:
        as_chat: returns the request as that of a chat completion.
        write: makes the writer of its answer.
        ended: is called with the request, the same as a chat's, and the whole answer.
        names: what the dialect calls fields of a chat, in whose place an error names them.
    """

    def __init__(
        self,
        as_chat: Callable[[JsonObject], JsonObject],
        write: Callable[[JsonObject], Writer],
        ended: Callable[[JsonObject, JsonObject, JsonObject], None] = lambda *_: None,
        names: Mapping[str, str] = _NO_NAMES,
    ) -> None:
        self._as_chat, self._write, self._ended, self._names = as_chat, write, ended, names
        self._asked: JsonObject = {}
        self.chat: JsonObject = {}  # the request that was parsed, as that of a chat completion

    @property
    def kind(self) -> Kind:
        return Kind(self.parse, ServedPolicy.check_size, prepare_cut, self._answer)

    def parse(self, body: bytes) -> ChatRequest:
        """Parse the request. Raises ApiError (400) if it is no JSON, a field is wrong, or this server does not support it."""
        self._asked = _object(body)
        try:
            self.chat = self._as_chat(self._asked)
        except WrongRequestError as error:
            raise wrong_request(error) from None
        except UnknownResponseError as error:
            raise ApiError(400, str(error), "previous_response_id", "previous_response_not_found") from None
        except UntranslatableError as error:
            raise ApiError(400, f"this server does not support {error}", code="unsupported_parameter") from None
        try:
            return parse_request(orjson.dumps(self.chat))
        except ApiError as error:
            raise _renamed(error, self._names) from None

    def _answer(self, policy: ServedPolicy, request: ChatRequest, prepared: Prepared) -> TranslatedAnswer:
        ended = partial(self._ended, self._asked, self.chat)
        return TranslatedAnswer(policy, request, prepared, self.writer(), ended)

    def writer(self) -> Writer:
        """Return what writes the answer to the request that was parsed."""
        return self._write(self._asked)


def response_translation(kept: KeptResponses) -> Translation:
    """Return the translation of one request of `/v1/responses`; its answer is kept."""
    return Translation(
        lambda body: chat_of_response(body, kept.of("")),
        lambda asked: ResponseWriter(asked, f"resp_{uuid.uuid4().hex}", time.time()),
        partial(_keep, kept),
    )


def _keep(kept: KeptResponses, asked: JsonObject, chat: JsonObject, whole: JsonObject) -> None:
    kept.keep("", whole["id"], asked, [*chat["messages"], *messages_of(whole["output"])], whole)


def message_translation() -> Translation:
    """Return the translation of one request of `/v1/messages`."""
    names = {"stop": "stop_sequences"}
    return Translation(chat_of_messages, lambda asked: MessageWriter(asked, f"msg_{uuid.uuid4().hex}"), names=names)


def counted_translation() -> Translation:
    """Return the translation of one request whose tokens are only counted."""
    return Translation(counted_chat, lambda asked: MessageWriter(asked, ""))


def _renamed(error: ApiError, names: Mapping[str, str]) -> ApiError:
    """Return an error that calls its field what the dialect calls it."""
    field = error.param or ""
    chat_name = field.partition("[")[0]
    if chat_name not in names or not error.message.startswith(field):
        return error
    own = names[chat_name] + field.removeprefix(chat_name)
    return ApiError(error.status, own + error.message.removeprefix(field), own, error.code, error.headers)


def _object(body: bytes) -> JsonObject:
    """Raises ApiError (400) if the body is no JSON object, or nested so deep that it cannot be written again."""
    try:
        found = orjson.loads(body)
        orjson.dumps(found)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        raise ApiError(400, "the body is no JSON, or nested too deep", code="invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body is no JSON object", code="invalid_json")
    return found


def prepare_cut(policy: ServedPolicy, request: ChatRequest, client: str) -> Prepared:
    """Prepare a request whose limit is cut to what is left of the context. Raises as `ServedPolicy.prepare`."""
    prepared = policy.prepare(request.model_copy(update={"max_completion_tokens": None, "max_tokens": None}), client)
    limit = min(request.limit or prepared.sampling.max_new_tokens, prepared.sampling.max_new_tokens)
    return replace(prepared, sampling=replace(prepared.sampling, max_new_tokens=limit))
