"""Validate what is written by the models of the published clients: no field is missing, and they know every one.

OpenAI's package takes fields for optional that OpenAI's published file requires and allows to be null; they are named here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic.types
from openai.types import Completion, ErrorObject
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

RESPONSE_EVENT = TypeAdapter[Any](ResponseStreamEvent)
MESSAGE_EVENT = TypeAdapter[Any](anthropic.types.RawMessageStreamEvent)


def unknown(value: Any, where: str = "") -> Iterator[str]:
    """The places of fields that the models do not know."""
    if isinstance(value, BaseModel):
        yield from (f"{where}.{name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from unknown(getattr(value, name), f"{where}.{name}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from unknown(one, f"{where}[{number}]")


def strictly(model: Any, value: Any) -> Any:
    """Return a value as the model reads it, if it is one field by field."""
    read = model.validate_python(value, strict=False) if isinstance(model, TypeAdapter) else model.model_validate(value)
    assert list(unknown(read)) == []
    return read


def response(value: Any) -> Response:
    return strictly(Response, value)


def message(value: Any) -> anthropic.types.Message:
    return strictly(anthropic.types.Message, value)


def response_events(events: list[Any]) -> list[Any]:
    """Events whose numbers have no gap. OpenAI's published file wants the name beside a call's arguments; the package lacks it."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    assert all(event["name"] for event in done)
    return [strictly(RESPONSE_EVENT, _without(event, "name") if event in done else event) for event in events]


def _without(event: Any, name: str) -> Any:
    return {key: value for key, value in event.items() if key != name}


def message_events(events: list[Any]) -> list[Any]:
    """Events of which those of a ping and of errors are no type of the package."""
    return [strictly(MESSAGE_EVENT, event) for event in events if event["type"] not in ("ping", "error")]


def completion(value: Any) -> ChatCompletion:
    for choice in value["choices"]:
        assert choice.keys() >= {"index", "message", "finish_reason", "logprobs"}
        assert choice["message"].keys() >= {"role", "content", "refusal"}
    return strictly(ChatCompletion, value)


def chunk(value: Any) -> ChatCompletionChunk:
    assert all(choice.keys() >= {"index", "delta", "finish_reason"} for choice in value["choices"])
    return strictly(ChatCompletionChunk, value)


def text_completion(value: Any) -> Completion:
    assert all(choice.keys() >= {"index", "text", "finish_reason", "logprobs"} for choice in value["choices"])
    return strictly(Completion, value)


def text_chunk(value: Any) -> Completion:
    """A part of a text completion, of the same published type: it knows no answer that goes on, where OpenAI says null."""
    choices = [choice | {"finish_reason": choice["finish_reason"] or "stop"} for choice in value["choices"]]
    return text_completion(value | {"choices": choices})


def error(value: Any) -> ErrorObject:
    assert value.keys() == {"error"}
    assert value["error"].keys() == {"message", "type", "param", "code"}
    return strictly(ErrorObject, value["error"])
