"""`/generate`, as SGLang has it: token ids in, sampled ids with their log-probs out. Harnesses that train ask this, such as Atropos.

| field | here |
|---|---|
| `input_ids`, or `text` | the prompt; the ids themselves, or text whose special tokens count as such |
| `sampling_params` | `n`, `temperature`, `top_p`, `top_k`, `min_p`, `stop`, penalties and `max_new_tokens` (128), as `/v1/completions` has them; what would change the draw and is not known here is refused |
| `return_logprob` | `meta_info.output_token_logprobs`: log-prob, id and null of each sampled token, the end marker included, at the sampling temperature |
| `stream` | refused |

With `n` above 1 the answer is a list.
"""  # noqa: E501  (a table row is one line)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from pydantic import Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.serve.serving.answering import Kind
from clawpipe.serve.serving.completions import TextAnswer
from clawpipe.serve.serving.engine_thread import Event
from clawpipe.serve.serving.errors import ApiError, parsed
from clawpipe.serve.serving.fields import Block
from clawpipe.serve.serving.policy import Prepared, ServedPolicy
from clawpipe.serve.serving.protocol import TextRequest, parse_text_request

GENERATE = "/generate"
_SAME = (
    *("n", "temperature", "top_p", "top_k", "min_p", "stop"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
)
_NEUTRAL = {"max_new_tokens", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"}  # of no effect on the draw
_LENGTH = 128


class _Request(Block):
    input_ids: list[int] | None = Field(None, min_length=1)
    text: str | None = None
    sampling_params: JsonObject = Field(default_factory=dict)
    return_logprob: bool = False
    stream: bool = False


class GeneratedAnswer(TextAnswer):
    """Builds the answer in SGLang's form."""

    def as_sent(self, events: Sequence[Event]) -> Any:
        choices = self.body(events)["choices"]
        answers = [self._generated(choice, self._prepared.prompt_of(choice["index"])) for choice in choices]
        return answers if len(answers) > 1 else answers[0]

    def _generated(self, choice: JsonObject, prompt: Sequence[int]) -> JsonObject:
        ids = choice["token_ids"]
        meta: JsonObject = {
            "id": self.id,
            "finish_reason": {"type": choice["finish_reason"]},
            "prompt_tokens": len(prompt),
            "completion_tokens": len(ids),
            "weight_version": self._policy.served.spec.policy_version,
        }
        if choice["logprobs"]:
            pairs = zip(choice["logprobs"]["token_logprobs"], ids, strict=True)
            meta["output_token_logprobs"] = [[logprob, token, None] for logprob, token in pairs]
        return {"text": choice["text"], "output_ids": ids, "meta_info": meta}


def generate_kind(name: str) -> Kind:
    """Return the kind of the requests to `/generate`, which name no model.

    Args:
        name: that of the served model.
    """

    def parse(body: bytes) -> TextRequest:
        return parse_text_request(orjson.dumps(_as_completion(parsed(_Request, body), name)))

    return Kind(parse, ServedPolicy.check_text_size, ServedPolicy.prepare_text, _answer)


def _answer(policy: ServedPolicy, request: TextRequest, prepared: Prepared) -> GeneratedAnswer:
    return GeneratedAnswer(policy, request, prepared)


def _as_completion(request: _Request, name: str) -> JsonObject:
    """Return the request as that of a completion. Raises ApiError (400) if this server cannot do what it asks for."""
    if request.stream:
        raise ApiError(400, "stream: this server answers /generate as a whole", "stream", "unsupported_parameter")
    if (request.input_ids is None) == (request.text is None):
        raise ApiError(400, "send one of input_ids and text", "input_ids", "missing_required_parameter")
    asked = {field: value for field, value in request.sampling_params.items() if value is not None}
    if unknown := sorted(asked.keys() - {*_SAME, *_NEUTRAL}):
        where = f"sampling_params.{unknown[0]}"
        raise ApiError(400, f"{where}: this server does not support the field", where, "unsupported_parameter")
    return {
        "model": name,
        "prompt": request.text if request.input_ids is None else request.input_ids,
        "max_tokens": asked.get("max_new_tokens", _LENGTH),
        "return_token_ids": True,
        "logprobs": 0 if request.return_logprob else None,
        **{field: asked[field] for field in _SAME if field in asked},
    }
