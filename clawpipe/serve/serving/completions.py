"""Bodies of /v1/chat/completions and /v1/completions: one object, or the chunks of a stream, built from the same deltas."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import ClawpipeError
from clawpipe.model.engines.sampling import Token
from clawpipe.serve.serving.choice import Ending
from clawpipe.serve.serving.conversation import call_body
from clawpipe.serve.serving.engine_thread import Event
from clawpipe.serve.serving.errors import ApiError, api_error, cancelled_error, failed_error
from clawpipe.serve.serving.fields import SamplingFields
from clawpipe.serve.serving.policy import Prepared, ServedPolicy
from clawpipe.serve.serving.turn import Delta

_DONE = "data: [DONE]\n\n"


class Answer:
    """Builds the answer to one request. Subclasses define the form of a choice and of its chunks."""

    prefix, whole, part = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, policy: ServedPolicy, request: SamplingFields, prepared: Prepared) -> None:
        self._policy, self._request, self._prepared = policy, request, prepared
        self.id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    @property
    def streams(self) -> bool:
        """Whether the client has asked for a stream."""
        return bool(self._request.stream)

    @property
    def headers(self) -> dict[str, str]:
        """Headers that say which log-probs the answer has: `raw` of the model, `tempered` as they were sampled, or `none` under a
        constraint, whose draw they do not tell; and which field constrains the answer."""
        kind = {} if self._request.top is None else {"x-clawpipe-logprobs": self._kind.get("kind", "raw")}
        return kind | ({"x-clawpipe-constrained": self._prepared.held.field} if self._prepared.held else {})

    def body(self, events: Sequence[Event]) -> JsonObject:
        """Return the whole answer; the events are those of a job that was not cancelled."""
        deltas: list[list[Delta]] = [[] for _ in range(self._prepared.count)]
        endings: dict[int, Ending] = {}
        for index, part in events:
            if isinstance(part, Ending):
                endings[index] = part
            else:
                deltas[index].append(part)
        choices = [self._choice(index, deltas[index], ending) for index, ending in sorted(endings.items())]
        return self._head(self.whole) | {"choices": choices, "usage": self._usage(endings)} | self._prompt_ids()

    def as_sent(self, events: Sequence[Event]) -> Any:
        """Return the whole answer in the form of the route, as JSON."""
        return self.body(events)

    async def chunks(self, events: AsyncIterator[Event]) -> AsyncIterator[str]:
        """Yield the answer as server-sent events. A failure after the first byte is sent as an event, too."""
        try:
            async for part in self._parts(events):
                yield _event(part)
            yield _DONE
        except (ApiError, ClawpipeError) as error:
            yield _event(api_error(error).body())
        except Exception:
            yield _event(failed_error().body())
            raise

    async def _parts(self, events: AsyncIterator[Event]) -> AsyncIterator[JsonObject]:
        """Yield the chunks of the answer. Raises ApiError (503) if the job was cancelled."""
        for index in range(self._prepared.count):
            yield self._chunk(index, self._opening(), first=index == 0)
        unsent: list[list[Token]] = [[] for _ in range(self._prepared.count)]
        endings: dict[int, Ending] = {}
        async for index, part in events:
            if isinstance(part, Ending):
                endings[index] = part
                for chunk in self._last_chunks(index, part, unsent[index]):
                    yield chunk
                continue
            unsent[index] += part.tokens
            if part.content:
                yield self._chunk(index, self._content(part.content), unsent[index])
                unsent[index] = []
        if len(endings) < self._prepared.count:
            raise cancelled_error()
        if self._request.with_usage:
            yield self._head(self.part) | {"choices": [], "usage": self._usage(endings)}

    def _choice(self, index: int, deltas: Sequence[Delta], ending: Ending) -> JsonObject:
        content = "".join(delta.content for delta in deltas)
        message: JsonObject = {"role": "assistant", "content": content, "refusal": None}
        if ending.calls:
            message |= {"content": content or None, "tool_calls": [call_body(call) for call in ending.calls]}
        tokens = [token for delta in deltas for token in delta.tokens]
        choice = {"index": index, "message": message, "logprobs": self._logprobs(tokens), "finish_reason": ending.finish_reason}
        return choice | self._ids(tokens) | self._more(ending)

    def _more(self, ending: Ending) -> JsonObject:
        """Return further fields of a choice: what is wrong with calls to strict tools."""
        return {"misfits": list(ending.misfits)} if ending.misfits else {}

    def _opening(self) -> JsonObject:
        """Return the delta of the first chunk of a choice."""
        return {"role": "assistant", "content": ""}

    def _content(self, content: str) -> JsonObject:
        """Return the delta of a chunk with this text."""
        return {"content": content}

    def _last_chunks(self, index: int, ending: Ending, unsent: list[Token]) -> list[JsonObject]:
        chunks = []
        for number, call in enumerate(ending.calls):
            opening = {"index": number, **call_body(call), "function": {"name": call.name, "arguments": ""}}
            chunks.append(self._chunk(index, {"tool_calls": [opening]}, unsent))
            chunks.append(self._chunk(index, {"tool_calls": [{"index": number, "function": {"arguments": call.arguments}}]}))
            unsent = []
        last = self._chunk(index, {}, unsent, ending.finish_reason)
        return [*chunks, last | {"choices": [choice | self._more(ending) for choice in last["choices"]]}]

    def _chunk(
        self, index: int, delta: JsonObject, tokens: Sequence[Token] = (), finish_reason: str | None = None, first: bool = False
    ) -> JsonObject:
        logprobs = self._logprobs(tokens) if tokens else None
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason} | self._ids(tokens)
        return self._part_of(choice, first)

    def _part_of(self, choice: JsonObject, first: bool) -> JsonObject:
        usage = {"usage": None} if self._request.with_usage else {}
        return self._head(self.part) | {"choices": [choice], **usage} | (self._prompt_ids() if first else {})

    def _prompt_ids(self) -> JsonObject:
        """Return the prompt's ids; of several prompts each choice has its own, as at vLLM."""
        return {"prompt_token_ids": self._prepared.prompts[0]} if self._request.return_token_ids and self._has_one_prompt else {}

    @property
    def _has_one_prompt(self) -> bool:
        return len(self._prepared.prompts) == 1

    def _ids(self, tokens: Sequence[Token]) -> JsonObject:
        return {"token_ids": [token.id for token in tokens]} if self._request.return_token_ids else {}

    def _head(self, kind: str) -> JsonObject:
        fingerprint = self._policy.served.spec.policy_version  # the same seed and fingerprint give the same answer
        model = self._request.model
        return {"id": self.id, "object": kind, "created": self._created, "model": model, "system_fingerprint": fingerprint}

    def _usage(self, endings: Mapping[int, Ending]) -> JsonObject:
        sampled = sum(ending.tokens for ending in endings.values())
        prompt, thoughts = self._prepared.prompt_tokens, [ending.reasoning for ending in endings.values()]
        known = [tokens for tokens in thoughts if tokens is not None]
        details = {"reasoning_tokens": sum(known)} if len(known) == len(thoughts) else {}
        return {
            "prompt_tokens": prompt,
            "completion_tokens": sampled,
            "total_tokens": prompt + sampled,
            "prompt_tokens_details": {"cached_tokens": self._cached(endings)},
            "completion_tokens_details": details,
        }

    def _cached(self, endings: Mapping[int, Ending]) -> int:
        """Return how many tokens of the prompts had been computed before the first of each one's answers."""
        first: dict[int, int] = {}
        for index, ending in endings.items():
            place = id(self._prepared.prompt_of(index))
            first[place] = min(ending.cached, first.get(place, ending.cached))
        return sum(first.values())

    def _logprobs(self, tokens: Sequence[Token]) -> JsonObject | None:
        if self._request.top is None:
            return None
        spell = self._policy.spelling.body
        entries = [
            spell(token.id, self._logprob(token)) | {"top_logprobs": [spell(*rival) for rival in token.likelihood.top]}
            for token in tokens
        ]
        return {"content": entries, "refusal": None} | self._kind

    @property
    def _kind(self) -> dict[str, str]:
        """Return the field with the kind of the log-probs, where they are not of OpenAI's kind."""
        if self._prepared.held:
            return {"kind": "none"}
        return {"kind": "tempered"} if self._request.return_token_ids else {}

    def _logprob(self, token: Token) -> float:
        """Return the log-prob that is reported: as it was sampled beside its id, else of the model's own distribution."""
        return token.logprob if self._request.return_token_ids else token.likelihood.logprob


class TextAnswer(Answer):
    """The answer to a request of plain text."""

    prefix, whole, part = "cmpl", "text_completion", "text_completion"

    def _choice(self, index: int, deltas: Sequence[Delta], ending: Ending) -> JsonObject:
        text = "".join(delta.content for delta in deltas)
        return self._text(index, text, [token for delta in deltas for token in delta.tokens], ending.finish_reason)

    def _chunk(
        self, index: int, delta: JsonObject, tokens: Sequence[Token] = (), finish_reason: str | None = None, first: bool = False
    ) -> JsonObject:
        return self._part_of(self._text(index, delta.get("content", ""), tokens, finish_reason), first)

    def _text(self, index: int, text: str, tokens: Sequence[Token], finish_reason: str | None) -> JsonObject:
        logprobs = self._logprobs(tokens) if tokens else None
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason} | self._ids(tokens)
        if self._request.return_token_ids and not self._has_one_prompt:
            choice["prompt_token_ids"] = self._prepared.prompt_of(index)
        return choice

    def _logprobs(self, tokens: Sequence[Token]) -> JsonObject | None:
        if self._request.top is None:
            return None
        spelt = [self._policy.spelling.body(token.id, self._logprob(token)) for token in tokens]
        rivals = [[self._policy.spelling.body(*rival) for rival in token.likelihood.top] for token in tokens]
        return {
            "tokens": [entry["token"] for entry in spelt],
            "token_logprobs": [entry["logprob"] for entry in spelt],
            "top_logprobs": [{rival["token"]: rival["logprob"] for rival in found} for found in rivals],
        } | self._kind


def _event(body: JsonObject) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"
