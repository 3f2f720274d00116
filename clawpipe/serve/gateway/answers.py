"""Parse the answers of a chat completion, whole or in chunks, and remove the fields that the client did not ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.endings import Transport, ending_of_answer, is_finished, says_failure
from clawpipe.data.capture.records import Answer, Ending
from clawpipe.data.wire.dialects.calls import UnheldError
from clawpipe.data.wire.thoughts import FIELDS
from clawpipe.serve.gateway.events import data_of, is_error, loaded
from clawpipe.serve.gateway.streamed import StreamedMessage
from clawpipe.serve.serving.errors import reason_of

_HIDDEN = ("prompt_token_ids", "prompt_logprobs", "kv_transfer_params")
_OF_CHOICE = ("token_ids", "prompt_token_ids", "stop_reason_ids")
NO_TOKENS = "the engine gives none"
NO_JSON = "no JSON"


@dataclass(frozen=True)
class ClientOptions:
    """The optional output that the client itself asked for."""

    token_ids: bool
    logprobs: bool
    usage: bool
    reasoning: bool

    @classmethod
    def of(cls, body: JsonObject) -> ClientOptions:
        options = body.get("stream_options")
        usage = not body.get("stream") or (isinstance(options, dict) and bool(options.get("include_usage")))
        return cls(
            bool(body.get("return_token_ids")), bool(body.get("logprobs")), usage, body.get("include_reasoning") is not False
        )


EVERYTHING = ClientOptions(token_ids=True, logprobs=True, usage=True, reasoning=True)


def with_questions(body: JsonObject) -> JsonObject:
    """Return the request with options that ask for token ids, log-probs, usage, and reasoning, without which vLLM blanks the
    ids."""
    asked = body | {"return_token_ids": True, "logprobs": True}
    if body.get("include_reasoning") is False:
        asked["include_reasoning"] = True
    if body.get("stream"):
        options = body.get("stream_options")
        asked["stream_options"] = (options if isinstance(options, dict) else {}) | {"include_usage": True}
    return asked


@dataclass
class _Choice:
    """The parts of one choice that have arrived."""

    message: StreamedMessage = field(default_factory=StreamedMessage)
    finish_reason: str | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def answer(self, has_tokens: bool) -> Answer:
        tokens = (self.ids, self.logprobs) if has_tokens else (None, None)
        return Answer({"role": "assistant"} | self.message.written(), self.finish_reason, *tokens)


class Collected:
    """The answers of one request, collected from a whole body or from chunks. What is collected is never changed afterwards.

    Attributes:
        response_id, model, usage: as the engine says them.
        prompt: token ids of the prompt, if the engine says them.
        over: whether a chunk said that it is the last one.
        has_last_event: whether each stream of this form says so; others may end behind the finish reason.
        failed: whether an error was among the chunks, in the body or in a choice.
        failure: what the engine says of that error, if it says something.
        unheld: why no record can hold the answer; None if one can.
        response: the whole response, where an engine gives one by that route.
    """

    over = False
    has_last_event = False
    response: JsonObject | None = None

    def __init__(self) -> None:
        self.response_id: str | None = None
        self.model: str | None = None
        self.usage: JsonObject | None = None
        self.prompt: list[int] | None = None
        self.failed = False
        self.failure: str | None = None
        self.unheld: str | None = None
        self._choices: dict[int, _Choice] = {}

    def add_event(self, event: bytes) -> Any:
        """Add an event of a stream, and return the JSON that it holds; None if it holds none."""
        data = data_of(event)
        body = loaded(data)
        self.failed = self.failed or is_error(event)
        if isinstance(body, dict):
            self.add(body)
        elif data.strip():
            self.unheld = self.unheld or NO_JSON
        return body

    def add(self, body: JsonObject) -> None:
        """Add a whole answer or one chunk. What has another form than OpenAI's is passed over."""
        self.failed = self.failed or bool(body.get("error")) or body.get("object") == "error"
        self.failure = self.failure or (reason_of(body) if self.failed else None)
        self.response_id = self.response_id or _typed(body.get("id"), str)
        self.model = self.model or _typed(body.get("model"), str)
        self.usage = _typed(body.get("usage"), dict) or self.usage
        self.prompt = self.prompt or _ids(body.get("prompt_token_ids"))
        choices = [one for one in _typed(body.get("choices"), list) or () if isinstance(one, dict)]
        for index, given in zip(_indices(choices), choices, strict=True):
            self._add_choice(self._choices.setdefault(index, _Choice()), given)

    def _add_choice(self, choice: _Choice, given: JsonObject) -> None:
        self.failed = self.failed or bool(given.get("error"))
        self.failure = self.failure or (reason_of(given) if self.failed else None)
        try:
            choice.message.add_choice(given)
        except UnheldError as error:
            self.unheld = self.unheld or error.args[0]
        choice.finish_reason = _typed(given.get("finish_reason"), str) or choice.finish_reason
        beside = _typed(given.get("provider_specific_fields"), dict) or {}  # LiteLLM moves the ids there
        choice.ids += _ids(given.get("token_ids")) or _ids(beside.get("token_ids")) or []
        logprobs = _typed(given.get("logprobs"), dict) or {}
        choice.logprobs += [
            entry.get("logprob", math.nan) for entry in _typed(logprobs.get("content"), list) or () if isinstance(entry, dict)
        ]
        self.prompt = self.prompt or _ids(given.get("prompt_token_ids")) or _ids(beside.get("prompt_token_ids"))

    @property
    def is_empty(self) -> bool:
        return not self._choices

    def uncaptured(self) -> str | None:
        """Return why there is nothing to record, or no record can hold it; None if one can."""
        if self.unheld or self.is_empty:
            return self.unheld or "no answer in it"
        try:
            self.answers(with_tokens=False)
        except UnheldError as error:
            return str(error)
        return None

    def ending(self, transport: Transport) -> Ending:
        """Return how the answer ended, if its bytes ended in this way."""
        return ending_of_answer(self.reasons, transport, self.failed)

    @property
    def is_finished(self) -> bool:
        """Whether each choice has its finish reason, none failed, and no last event is still to come."""
        return is_finished(self.reasons) and not self.says_failure and (self.over or not self.has_last_event)

    @property
    def says_failure(self) -> bool:
        """Whether the engine said that the answer failed; one that gives no finish reason says nothing."""
        return says_failure(self.reasons, self.failed)

    @property
    def reasons(self) -> list[str | None]:
        """The finish reason of each choice that began; None where none came."""
        return [choice.finish_reason for choice in self._choices.values()]

    def no_tokens(self) -> str | None:
        """Return why the tokens cannot be used; None if they can."""
        choices = self._choices.values()
        if not self.prompt or not any(choice.ids for choice in choices):
            return NO_TOKENS
        if any(len(choice.ids) != len(choice.logprobs) for choice in choices):
            return "ids and log-probs differ in number"
        measured: list[Any] = [one for choice in choices for one in choice.logprobs]
        if not all(isinstance(one, float | int) and math.isfinite(one) for one in measured):
            return "a log-prob is no number"
        sampled = (self.usage or {}).get("completion_tokens")
        if isinstance(sampled, int) and sampled != sum(len(choice.ids) for choice in choices):
            return "fewer ids than the engine says it sampled"
        return None

    def answers(self, with_tokens: bool) -> list[Answer]:
        """Return the answers in the order of their index."""
        return [choice.answer(with_tokens and bool(choice.ids)) for _, choice in sorted(self._choices.items())]


def stripped(body: JsonObject, client_options: ClientOptions) -> JsonObject | None:
    """Return an answer or chunk without the fields that the client did not ask for; None if nothing of a chunk is left. The body
    that is given, of which others hold parts, stays as it is."""
    hidden = (() if client_options.token_ids else _HIDDEN) + (() if client_options.usage else ("usage",))
    kept = {name: value for name, value in body.items() if name not in hidden}
    choices = _typed(body.get("choices"), list)
    if choices == [] and "usage" in body.keys() - kept.keys():
        return None
    if not choices:
        return kept
    kept["choices"] = [left for one in choices if (left := _stripped_choice(one, client_options)) is not None]
    return kept if kept["choices"] else None


def _stripped_choice(choice: Any, client_options: ClientOptions) -> Any:
    """Return a choice without what the client did not ask for; None if it says nothing any more."""
    if not isinstance(choice, dict):
        return choice
    hidden = () if client_options.token_ids else _OF_CHOICE
    kept = {name: value for name, value in choice.items() if name not in hidden}
    if not client_options.token_ids and isinstance(beside := kept.get("provider_specific_fields"), dict):
        kept["provider_specific_fields"] = {name: value for name, value in beside.items() if name not in _OF_CHOICE}
    if not client_options.logprobs and kept.get("logprobs") is not None:
        kept["logprobs"] = None
    return kept if client_options.reasoning else _without_thoughts(kept)


def _without_thoughts(choice: JsonObject) -> JsonObject | None:
    """Return a choice without its thoughts; None if it is a chunk's that held nothing else."""
    place = "delta" if isinstance(choice.get("delta"), dict) else "message"
    message = choice.get(place)
    if not isinstance(message, dict) or not message.keys() & set(FIELDS):
        return choice
    left = {name: value for name, value in message.items() if name not in FIELDS}
    says = left or choice.get("finish_reason") or "message" in choice
    return choice | {place: left} if says else None


def _indices(choices: Sequence[JsonObject]) -> Sequence[int]:
    """Return the indices of choices that came together: as they say, or their places where some say none or the same."""
    said = [choice.get("index") for choice in choices]
    known = [index for index in said if isinstance(index, int)]
    return known if len(set(known)) == len(choices) else range(len(choices))


def _ids(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and all(type(token) is int for token in value) else None


def _typed(value: Any, kind: type) -> Any:
    return value if isinstance(value, kind) else None
