"""The requests. An accepted field has its full effect; one that would change the answer is refused with 400.

Of /v1/chat/completions:

| field | here |
|---|---|
| `model` | the name of the served model; any other is a 404 |
| `messages` | roles system, developer (as system), user, assistant, tool; text only; parts are joined by line breaks, those of an assistant message by nothing, a refusal is a text. A thought in `reasoning_content` or `reasoning` stands before the text, in `<think>` tags |
| `tools` | functions with a JSON Schema of their arguments (draft 2020-12, or the one that `$schema` names; `$ref` only inside it), which the policy is shown. `strict` is a wish where the draw is free: a call that does not fit its tool's schema is counted, and named in the choice's `misfits` |
| `tool_choice` | `auto`; `none` shows the policy no tools and reads its turn as text; `required`, a named function and `allowed_tools` of mode `required` hold the answer to calls that fit their schemas; of mode `auto` they let only these tools be called |
| `parallel_tool_calls` | `false`: the turn ends with its first call |
| `stream`, `stream_options.include_usage` | yes |
| `max_completion_tokens`, `max_tokens` | one of them; with the prompt it must fit the context. Without: all that is left of the context |
| `temperature`, `top_p`, `top_k`, `min_p`, `seed` | exact; a temperature below 0.00001 is 0, greedy. The defaults are 1, 1, off, 0 and a random seed. The same request with the same seed and `system_fingerprint` gives the same turn, whoever else asks |
| `presence_penalty`, `frequency_penalty`, `repetition_penalty`, `logit_bias` | as vLLM computes them |
| `n` | up to 32 answers; the prompt is computed once. Choice i is the answer to the seed + i |
| `stop` | up to 64 strings of up to 256 characters; the first that is complete ends the turn; found in the policy's own text, that of a call included |
| `response_format` | `json_object` or `json_schema`: no token is sampled that does not fit (llguidance). Beside tools the answer is such JSON, or calls |
| `logprobs`, `top_logprobs` | log-probs under the model's own distribution (temperature 1, all tokens), as OpenAI and vLLM report them, whatever the settings are; one entry a sampled token of the text, that of a call included; not of the end marker |
| `return_token_ids` | as vLLM: `prompt_token_ids` (in a stream: in the first chunk), and in each choice `token_ids` (in a stream: of this chunk), the end marker and a stop string's tokens included. `logprobs` are then one entry for each of these ids, at the sampling temperature over the full vocabulary (at 1 when greedy), and say so: `"kind": "tempered"`, header `x-clawpipe-logprobs` |
| `modalities` | only with the value that changes nothing |
| `session_id` | the conversation, as the header `X-Session-Id` |
| `user`, `metadata`, `store`, `service_tier`, `prediction`, `stream_options.include_obfuscation` and other labels; fields that nobody here knows | taken and of no effect |
| fields of other servers that change what is sampled or answered | refused, unless the value changes nothing |

`null` means absent, as in OpenAI's own interface. /v1/completions takes the same settings, with `prompt` (a text or token ids) in place
of messages and tools.
"""  # noqa: E501  (a table row is one line)

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.schemas import check_schema
from clawpipe.data.wire.texts import joined_texts
from clawpipe.data.wire.thoughts import FIELDS
from clawpipe.serve.serving.errors import ApiError
from clawpipe.serve.serving.fields import MOST_CHOICES, Block, SamplingFields, only, parse_fields, wrapped
from clawpipe.serve.serving.tools import Choosing, GivenChoice, RequestTool, choosing

_MAX_TOP_LOGPROBS = 20
_DEFAULT_LENGTH = 16  # of a plain text; OpenAI's


def _checked(schema: JsonObject) -> JsonObject:
    check_schema(schema)
    return schema


def _refused(part: Any) -> Any:
    """Return a refusal, which an assistant said, as the text that it is."""
    if isinstance(part, dict) and part.get("type") == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    return part


class TextPart(Block):
    type: Literal["text"]
    text: str


GivenPart = Annotated[TextPart, BeforeValidator(_refused)]


class CalledFunction(Block):
    name: str
    arguments: str | JsonObject | None = None


class RequestToolCall(Block):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class RequestMessage(Block):
    """A message; `clawpipe.serve.serving.conversation` checks which fields its role may have."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[GivenPart], wrapped(str, lambda text: [{"type": "text", "text": text}])] | None = None
    tool_calls: list[RequestToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    audio: None = None
    function_call: None = None
    annotations: Annotated[list[Any], only([])] | None = None  # OpenAI's client dumps an answer with these four fields

    @property
    def text(self) -> str:
        return joined_texts(self.role, [*(part.text for part in self.content or ()), *([self.refusal] if self.refusal else [])])

    @property
    def thoughts(self) -> list[str]:
        return [thought for name in FIELDS if (thought := getattr(self, name))][:1]


class NamedSchema(Block):
    name: str | None = None
    schema_: Annotated[JsonObject, AfterValidator(_checked)] | None = Field(None, alias="schema")


class ResponseFormat(Block):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class ChatRequest(SamplingFields):
    """The body of POST /v1/chat/completions."""

    messages: list[RequestMessage] = Field(min_length=1)
    tools: list[RequestTool] | None = None
    tool_choice: GivenChoice | None = None
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=_MAX_TOP_LOGPROBS)
    response_format: ResponseFormat | None = None
    parallel_tool_calls: bool | None = None
    modalities: Annotated[list[str], only(["text"])] | None = None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def offered(self) -> list[RequestTool]:
        """The tools that the policy sees."""
        return [] if self.tool_choice and self.tool_choice.type == "none" else self.tools or []

    @property
    def choosing(self) -> Choosing:
        """What may be called. Raises ApiError (400), see `clawpipe.serve.serving.tools.choosing`."""
        return choosing(self.offered, self.tool_choice, self.parallel_tool_calls)

    @property
    def top(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None

    @property
    def answer_schema(self) -> JsonObject | None:
        """The JSON Schema that answers must fit; None: any text."""
        wanted = self.response_format
        if wanted is None or wanted.type == "text":
            return None
        return (wanted.json_schema.schema_ if wanted.json_schema else None) or {"type": "object"}


def parse_request(body: bytes) -> ChatRequest:
    """Parse a request. Raises ApiError (400) if it is no JSON, or a field is wrong or not supported."""
    request = parse_fields(ChatRequest, body)
    if request.top_logprobs and not request.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", "top_logprobs")
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        raise ApiError(400, "max_tokens is the old name of max_completion_tokens; send one of them", "max_tokens")
    _ = request.choosing  # refused here, before anything is made of the request
    _check_format(request)
    return request


def _check_format(request: ChatRequest) -> None:
    wanted = request.response_format
    if wanted is not None and wanted.type == "json_schema" and (wanted.json_schema is None or wanted.json_schema.schema_ is None):
        raise ApiError(400, "response_format.json_schema.schema is missing", "response_format", "missing_required_parameter")


def _listed(prompt: Any) -> Any:
    """Return a list of prompts, of which one alone is the short form."""
    is_one = isinstance(prompt, str) or (isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], int))
    return [prompt] if is_one else prompt


class TextRequest(SamplingFields):
    """The body of POST /v1/completions.

    prompt: text, whose special tokens count as such, or the ids themselves, or a list of either. logprobs: how many rivals to
    report for each token.
    """

    prompt: Annotated[list[str | list[int]], BeforeValidator(_listed), Field(min_length=1)]
    logprobs: int | None = Field(None, ge=0, le=_MAX_TOP_LOGPROBS)
    echo: bool | None = None
    best_of: int | None = None

    @property
    def top(self) -> int | None:
        return self.logprobs

    @property
    def limit(self) -> int | None:
        return self.max_tokens or _DEFAULT_LENGTH


def parse_text_request(body: bytes) -> TextRequest:
    """Parse a request. Raises ApiError (400) if it is no JSON, or a field is wrong or not supported."""
    request = parse_fields(TextRequest, body)
    for name, neutral in (("echo", (None, False)), ("best_of", (None, request.n or 1))):
        if getattr(request, name) not in neutral:
            raise ApiError(400, f"{name}: this server does not support the field", name, "unsupported_parameter")
    if len(request.prompt) * (request.n or 1) > MOST_CHOICES:
        raise ApiError(400, f"prompt: more than {MOST_CHOICES} answers to one request", "prompt", "invalid_value")
    return request
