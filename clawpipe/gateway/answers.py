"""Parse the answers of a chat completion, whole or in chunks, and remove the fields that the client did not ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from clawpipe.capture.records import Answer
from clawpipe.json_types import JsonObject

_HIDDEN = ("prompt_token_ids", "prompt_logprobs", "kv_transfer_params")
_OF_CHOICE = ("token_ids", "prompt_token_ids", "stop_reason_ids")
_REASONING = ("reasoning_content", "reasoning")
NO_TOKENS = "the engine gives none"


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

    message: JsonObject = field(default_factory=dict)
    finish_reason: str | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def answer(self, has_tokens: bool) -> Answer:
        tokens = (self.ids, self.logprobs) if has_tokens else (None, None)
        return Answer({"role": "assistant"} | self.message, self.finish_reason, *tokens)


class Collected:
    """The answers of one request, collected from a whole body or from chunks.

    Attributes:
        response_id, model, usage: as the engine says them.
        prompt: token ids of the prompt, if the engine says them.
        over: whether a chunk said that it is the last one.
    """

    over = False

    def __init__(self) -> None:
        self.response_id: str | None = None
        self.model: str | None = None
        self.usage: JsonObject | None = None
        self.prompt: list[int] | None = None
        self._choices: dict[int, _Choice] = {}

    def add(self, body: JsonObject) -> None:
        """Add a whole answer or one chunk. What has another form than OpenAI's is passed over."""
        self.response_id = self.response_id or _typed(body.get("id"), str)
        self.model = self.model or _typed(body.get("model"), str)
        self.usage = _typed(body.get("usage"), dict) or self.usage
        self.prompt = self.prompt or _ids(body.get("prompt_token_ids"))
        for given in _typed(body.get("choices"), list) or ():
            if isinstance(given, dict):
                self._add_choice(given)

    def _add_choice(self, given: JsonObject) -> None:
        choice = self._choices.setdefault(_typed(given.get("index"), int) or 0, _Choice())
        merge(choice.message, _typed(given.get("message"), dict) or _typed(given.get("delta"), dict) or {})
        choice.finish_reason = _typed(given.get("finish_reason"), str) or choice.finish_reason
        beside = _typed(given.get("provider_specific_fields"), dict) or {}  # LiteLLM moves the ids there
        choice.ids += _ids(given.get("token_ids")) or _ids(beside.get("token_ids")) or []
        logprobs = _typed(given.get("logprobs"), dict) or {}
        choice.logprobs += [entry.get("logprob", math.nan) for entry in logprobs.get("content") or () if isinstance(entry, dict)]
        self.prompt = self.prompt or _ids(given.get("prompt_token_ids")) or _ids(beside.get("prompt_token_ids"))

    @property
    def is_empty(self) -> bool:
        return not self._choices

    def no_tokens(self) -> str | None:
        """Return why the tokens cannot be used; None if they can."""
        choices = self._choices.values()
        if not self.prompt or not any(choice.ids for choice in choices):
            return NO_TOKENS
        if any(len(choice.ids) != len(choice.logprobs) for choice in choices):
            return "ids and log-probs differ in number"
        if any(not isinstance(one, float | int) or not math.isfinite(one) for choice in choices for one in choice.logprobs):
            return "a log-prob is no number"
        sampled = (self.usage or {}).get("completion_tokens")
        if isinstance(sampled, int) and sampled != sum(len(choice.ids) for choice in choices):
            return "fewer ids than the engine says it sampled"
        return None

    def answers(self, with_tokens: bool) -> list[Answer]:
        """Return the answers in the order of their index."""
        return [choice.answer(with_tokens and bool(choice.ids)) for _, choice in sorted(self._choices.items())]


def merge(message: JsonObject, delta: JsonObject) -> None:
    """Add a delta to a message: texts grow, tool calls by their index."""
    for name, value in delta.items():
        if name == "tool_calls" and isinstance(value, list):
            for place, call in enumerate(value):
                _merge_call(message.setdefault("tool_calls", []), call, place)
        elif isinstance(value, str) and isinstance(message.get(name), str) and name != "role":
            message[name] += value
        elif value is not None or name not in message:
            message[name] = value


def _merge_call(calls: list[JsonObject], delta: Any, place: int) -> None:
    if not isinstance(delta, dict):
        return
    place = index if isinstance(index := delta.get("index"), int) else place
    while len(calls) <= place < 1024:
        calls.append({"type": "function", "function": {}})
    call = calls[place]
    merge(call["function"], _typed(delta.get("function"), dict) or {})
    call.update({name: value for name, value in delta.items() if name not in ("index", "function") and value is not None})


def stripped(body: JsonObject, client_options: ClientOptions) -> JsonObject | None:
    """Return an answer or chunk without the fields that the client did not ask for; None if nothing of a chunk is left."""
    choices = _typed(body.get("choices"), list)
    if not client_options.usage and "usage" in body:
        del body["usage"]
        if choices == []:
            return None
    if not client_options.token_ids:
        for name in _HIDDEN:
            body.pop(name, None)
    kept = [choice for choice in choices or () if not isinstance(choice, dict) or _strip_choice(choice, client_options)]
    if choices and not kept:
        return None
    return body


def _strip_choice(choice: JsonObject, client_options: ClientOptions) -> bool:
    """Strip one choice. Returns whether it still says something."""
    if not client_options.token_ids:
        for name in _OF_CHOICE:
            choice.pop(name, None)
        if isinstance(beside := choice.get("provider_specific_fields"), dict):
            beside.pop("token_ids", None)
    if not client_options.logprobs and choice.get("logprobs") is not None:
        choice["logprobs"] = None
    message = choice.get("delta") if isinstance(choice.get("delta"), dict) else choice.get("message")
    if client_options.reasoning or not isinstance(message, dict):
        return True
    hidden = [message.pop(name) for name in _REASONING if name in message]
    return bool(message or choice.get("finish_reason") or "message" in choice or not hidden)


def _ids(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and all(type(token) is int for token in value) else None


def _typed(value: Any, kind: type) -> Any:
    return value if isinstance(value, kind) else None
