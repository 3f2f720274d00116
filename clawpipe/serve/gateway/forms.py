"""The routes that produce a turn: how to read requests and answers of each as those of a chat."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.records import Api
from clawpipe.data.wire.dialects.fields import UntranslatableError
from clawpipe.data.wire.dialects.messages_in import chat_of_messages
from clawpipe.data.wire.dialects.messages_out import MessageWriter
from clawpipe.data.wire.dialects.responses_in import History, chat_of_response
from clawpipe.data.wire.dialects.responses_out import ResponseWriter
from clawpipe.data.wire.dialects.writing import Writer
from clawpipe.serve.gateway.answers import EVERYTHING, ClientOptions, Collected, with_questions
from clawpipe.serve.gateway.messages import CollectedMessage
from clawpipe.serve.gateway.responses import CollectedResponse
from clawpipe.serve.gateway.upstream import CHAT
from clawpipe.serve.serving.errors import ApiError

TEXT, RESPONSES, MESSAGES = "/v1/completions", "/v1/responses", "/v1/messages"


@dataclass(frozen=True)
class Form:
    """A route that produces a turn.

    Attributes:
        path: the engine's route.
        api: its name in a record.
        as_chat: returns a request as a chat's; raises ApiError (400) or UntranslatableError.
        questions: returns a request with the questions for tokens; None: the route has none.
        collected: makes what collects an answer.
        client_options: returns what a client asked for itself.
        writer: makes what writes a chat's answer in the client's form; None: the client gets the engine's own.
        translated: the form in which engines are asked that say tokens of chats alone, or lack the route.
    """

    path: str
    api: Api
    as_chat: Callable[[JsonObject, History], JsonObject]
    questions: Callable[[JsonObject], JsonObject] | None
    collected: Callable[[], Collected]
    client_options: Callable[[JsonObject], ClientOptions]
    writer: Callable[[JsonObject], Writer] | None = None
    translated: Form | None = None


class CollectedText(Collected):
    """The answers of a text completion."""

    def add(self, body: JsonObject) -> None:
        choices = body.get("choices")
        given = [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
        super().add({**body, "choices": [_as_chat_choice(one) for one in given]})


def _as_chat_choice(choice: JsonObject) -> JsonObject:
    logprobs = choice.get("logprobs")
    listed = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
    content = [{"logprob": one} for one in listed] if isinstance(listed, list) else []
    return {**choice, "delta": {"content": choice.get("text")}, "logprobs": {"content": content}}


def _chat(body: JsonObject, _: History) -> JsonObject:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages: not a list of messages", "messages", "invalid_value")
    return body


def _text_as_chat(body: JsonObject, _: History) -> JsonObject:
    """Return a text completion as a chat of one message. It has no template, so it is a side turn unless the client says `main`."""
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        raise UntranslatableError("a prompt that is not one text")
    if body.get("echo") or body.get("suffix"):
        raise UntranslatableError("echo or suffix")
    kept = {name: value for name, value in body.items() if name != "prompt"}
    return {"turn_type": "side"} | kept | {"messages": [{"role": "user", "content": prompt}]}


def _text_questions(body: JsonObject) -> JsonObject:
    asked = with_questions(body)
    return asked | {"logprobs": body.get("logprobs") or 1}


def _text_options(body: JsonObject) -> ClientOptions:
    own: dict[str, Any] = {**body, "logprobs": body.get("logprobs") is not None}
    return ClientOptions.of(own)


def _response_writer(asked: JsonObject) -> Writer:
    return ResponseWriter(asked, f"resp_{uuid.uuid4().hex}", time.time())


def _message_writer(asked: JsonObject) -> Writer:
    return MessageWriter(asked, f"msg_{uuid.uuid4().hex}")


def _message_as_chat(body: JsonObject, _: History) -> JsonObject:
    return chat_of_messages(body)


_CHAT = Form(CHAT, "chat", _chat, with_questions, Collected, ClientOptions.of)
_RESPONSES = Form(RESPONSES, "responses", chat_of_response, None, CollectedResponse, lambda _: EVERYTHING)
_MESSAGES = Form(MESSAGES, "messages", _message_as_chat, None, CollectedMessage, lambda _: EVERYTHING)


def _by_chat(form: Form, writer: Callable[[JsonObject], Writer]) -> Form:
    """Return a form of which engines may be asked for a chat completion in its place."""
    return replace(form, translated=replace(_CHAT, api=form.api, writer=writer))


FORMS = (
    _CHAT,
    Form(TEXT, "completions", _text_as_chat, _text_questions, CollectedText, _text_options),
    _by_chat(_RESPONSES, _response_writer),
    _by_chat(_MESSAGES, _message_writer),
)
