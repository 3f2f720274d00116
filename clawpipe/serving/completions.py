"""Bodies of /v1/chat/completions: one object, or the chunks of a stream, built from the same deltas."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence

from clawpipe.errors import ClawpipeError
from clawpipe.json_types import JsonObject
from clawpipe.serving.conversation import call_body
from clawpipe.serving.policy import Ending, Prepared, ServedPolicy
from clawpipe.serving.protocol import ApiError, ChatRequest, cancelled_error
from clawpipe.serving.turn import Delta, Sampled

_DONE = "data: [DONE]\n\n"


class Answer:
    """Builds the answer to one request."""

    def __init__(self, policy: ServedPolicy, request: ChatRequest, prepared: Prepared) -> None:
        self._policy, self._request, self._prepared = policy, request, prepared
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def body(self, deltas: Sequence[Delta], ending: Ending) -> JsonObject:
        """Return the whole answer."""
        content = "".join(delta.content for delta in deltas)
        message: JsonObject = {"role": "assistant", "content": content, "refusal": None}
        if ending.calls:
            message |= {"content": content or None, "tool_calls": [call_body(call) for call in ending.calls]}
        tokens = [token for delta in deltas for token in delta.tokens]
        choice = {"index": 0, "message": message, "logprobs": self._logprobs(tokens), "finish_reason": ending.finish_reason}
        return self._head("chat.completion") | {"choices": [choice], "usage": self._usage(ending)}

    async def chunks(self, events: AsyncIterator[Delta | Ending]) -> AsyncIterator[str]:
        """Yield the answer as server-sent events. A failure after the first byte is sent as an event, too."""
        yield self._chunk({"role": "assistant", "content": ""})
        unsent: list[Sampled] = []
        try:
            async for event in events:
                if isinstance(event, Delta):
                    unsent += event.tokens
                    if event.content:
                        yield self._chunk({"content": event.content}, unsent)
                        unsent = []
                else:
                    for chunk in self._last_chunks(event, unsent):
                        yield chunk
                    return
            yield _event(cancelled_error().body())
        except ClawpipeError as error:
            yield _event(ApiError.of(error).body())
        except Exception:
            yield _event(ApiError(500, "the server failed while it generated").body())
            raise

    def _last_chunks(self, ending: Ending, unsent: list[Sampled]) -> list[str]:
        chunks = []
        for index, call in enumerate(ending.calls):
            whole = call_body(call)
            opening = {"index": index, **whole, "function": {"name": call.name, "arguments": ""}}
            chunks.append(self._chunk({"tool_calls": [opening]}, unsent))
            chunks.append(self._chunk({"tool_calls": [{"index": index, "function": {"arguments": call.arguments}}]}))
            unsent = []
        chunks.append(self._chunk({}, unsent, ending.finish_reason))
        if self._with_usage:
            chunks.append(_event(self._head("chat.completion.chunk") | {"choices": [], "usage": self._usage(ending)}))
        return [*chunks, _DONE]

    def _chunk(self, delta: JsonObject, tokens: Sequence[Sampled] = (), finish_reason: str | None = None) -> str:
        logprobs = self._logprobs(tokens) if tokens else None
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        usage = {"usage": None} if self._with_usage else {}
        return _event(self._head("chat.completion.chunk") | {"choices": [choice], **usage})

    def _head(self, kind: str) -> JsonObject:
        served = self._policy.served
        fingerprint = served.spec.policy_version  # the same seed and fingerprint give the same answer
        return {"id": self._id, "object": kind, "created": self._created, "model": served.name, "system_fingerprint": fingerprint}

    def _usage(self, ending: Ending) -> dict[str, int]:
        prompt = len(self._prepared.prompt)
        return {"prompt_tokens": prompt, "completion_tokens": ending.tokens, "total_tokens": prompt + ending.tokens}

    @property
    def _with_usage(self) -> bool:
        return bool(self._request.stream_options and self._request.stream_options.include_usage)

    def _logprobs(self, tokens: Sequence[Sampled]) -> JsonObject | None:
        if self._request.top is None:
            return None
        spell = self._policy.spelling.body
        entries = [
            spell(token, likelihood.logprob) | {"top_logprobs": [spell(*rival) for rival in likelihood.top]}
            for token, likelihood in tokens
        ]
        return {"content": entries, "refusal": None}


def _event(body: JsonObject) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"
