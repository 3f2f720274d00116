"""The requests that the server accepts. An accepted field has its full effect; any other is refused with 400 and named.

| field | here |
|---|---|
| `model` | the name of the served model; any other is a 404 |
| `messages` | roles system, developer (as system), user, assistant, tool; text only, parts are joined by line breaks |
| `tools` | functions with a JSON Schema of their arguments (draft 2020-12, or the one that `$schema` names; `$ref` only inside it), which the policy is shown. As without `strict` at OpenAI, its calls are not forced to fit |
| `tool_choice` | `auto`; `none` shows the policy no tools and reads its turn as text |
| `stream`, `stream_options.include_usage` | yes |
| `max_completion_tokens`, `max_tokens` | one of them; with the prompt it must fit the context. Without: all that is left of the context |
| `temperature`, `top_p`, `seed` | exact. The defaults are 1, 1 and a random seed. The same request with the same seed and `system_fingerprint` gives the same turn |
| `stop` | up to four strings of up to 256 characters; the first that is complete ends the turn; found in the policy's own text, that of a call included |
| `logprobs`, `top_logprobs` | log-probs under the model's own distribution (temperature 1, all tokens), as OpenAI and vLLM report them, whatever `temperature` and `top_p` are; one entry a sampled token of the text, that of a call included; not of the end marker |
| `n`, `frequency_penalty`, `presence_penalty`, `logit_bias`, `response_format`, `parallel_tool_calls`, `modalities`, `service_tier`, `store` | only with the value that changes nothing |
| `user`, `safety_identifier`, `prompt_cache_key`, `metadata` | taken and of no effect: they label what a provider keeps, and nothing is kept |
| anything else | refused |

`null` means absent, as in OpenAI's own interface.
"""  # noqa: E501  (a table row is one line)

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from clawpipe.errors import BusyError, ClawpipeError
from clawpipe.json_types import JsonObject
from clawpipe.messages import TOOL_NAME
from clawpipe.schemas import check_parameters

RETRY_AFTER_SECONDS = 5
_TYPES = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_MAX_STOPS = 4
_MAX_STOP_LENGTH = 256  # searched for after every token
_MAX_TOP_LOGPROBS = 20
_CODES = {"extra_forbidden": "unsupported_parameter", "missing": "missing_required_parameter"}
Stop = Annotated[str, Field(min_length=1, max_length=_MAX_STOP_LENGTH)]


class ApiError(Exception):
    """A refused request.

    Args:
        status: HTTP status.
        message: what is wrong.
        param: the field that is wrong.
        code: OpenAI's short name for the error.
        headers: headers of the response.
    """

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    @classmethod
    def of(cls, error: ClawpipeError) -> ApiError:
        """Convert a clawpipe error: a full queue gives 429, everything else is the request's fault and gives 400."""
        if isinstance(error, BusyError):
            return cls(429, error.what, code="server_busy", headers={"retry-after": str(RETRY_AFTER_SECONDS)})
        return cls(400, error.what, error.where or None, "invalid_value")

    def body(self) -> JsonObject:
        kind = _TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, self.headers)


def cancelled_error() -> ApiError:
    """Return the error of a cancelled turn, which a client reads only if the server is stopping."""
    return ApiError(503, "the server stops", code="server_stopping", headers={"retry-after": str(RETRY_AFTER_SECONDS)})


class Block(BaseModel):
    """A strict model: no coercion, no unknown field, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


def _only(neutral: Any) -> AfterValidator:
    """Accept only a value that changes nothing (one of a tuple)."""
    allowed = neutral if isinstance(neutral, tuple) else (neutral,)

    def check(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"not supported; leave it out or send {' or '.join(map(json.dumps, allowed))}")
        return value

    return AfterValidator(check)


def _checked(parameters: JsonObject) -> JsonObject:
    check_parameters(parameters)
    return parameters


def _wrapped(kind: type, wrap: Callable[[Any], Any]) -> BeforeValidator:
    """Accept the short form of a list."""
    return BeforeValidator(lambda value: wrap(value) if isinstance(value, kind) else value)


class TextPart(Block):
    type: Literal["text"]
    text: str


class CalledFunction(Block):
    name: str
    arguments: str


class RequestToolCall(Block):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class RequestMessage(Block):
    """A message; `clawpipe.serving.conversation` checks which fields its role may have."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[TextPart], _wrapped(str, lambda text: [{"type": "text", "text": text}])] | None = None
    tool_calls: list[RequestToolCall] | None = None
    tool_call_id: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: Annotated[list[Any], _only([])] | None = None  # OpenAI's client dumps an answer with these four fields

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content or ())


class Function(Block):
    name: str = Field(pattern=f"^{TOOL_NAME}$")
    description: str | None = None
    parameters: Annotated[JsonObject, AfterValidator(_checked)] | None = None
    strict: Annotated[bool, _only(False)] | None = None


class RequestTool(Block):
    type: Literal["function"]
    function: Function


class StreamOptions(Block):
    include_usage: bool | None = None
    include_obfuscation: Annotated[bool, _only(False)] | None = None


class ResponseFormat(Block):
    type: Annotated[str, _only("text")]


class ChatRequest(Block):
    """The body of POST /v1/chat/completions."""

    model: str
    messages: list[RequestMessage] = Field(min_length=1)
    tools: list[RequestTool] | None = None
    tool_choice: Annotated[Any, _only(("auto", "none"))] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_completion_tokens: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Annotated[list[Stop], Field(max_length=_MAX_STOPS), _wrapped(str, lambda text: [text])] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=_MAX_TOP_LOGPROBS)
    n: Annotated[int, _only(1)] | None = None
    frequency_penalty: Annotated[float, _only(0)] | None = None
    presence_penalty: Annotated[float, _only(0)] | None = None
    logit_bias: Annotated[dict[str, float], _only({})] | None = None
    response_format: ResponseFormat | None = None
    parallel_tool_calls: Annotated[bool, _only(True)] | None = None
    modalities: Annotated[list[str], _only(["text"])] | None = None
    service_tier: Annotated[str, _only(("auto", "default"))] | None = None
    store: Annotated[bool, _only(False)] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = None

    @property
    def limit(self) -> int | None:
        """Number of tokens that the answer may have."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def offered(self) -> list[RequestTool]:
        """The tools that the policy sees."""
        return [] if self.tool_choice == "none" else self.tools or []

    @property
    def top(self) -> int | None:
        """Number of top log-probs to report per token; None: no log-probs at all."""
        return self.top_logprobs or 0 if self.logprobs else None


def parse_request(body: bytes) -> ChatRequest:
    """Parse a request. Raises ApiError (400) if it is no JSON, or a field is wrong or not supported."""
    try:
        request = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise _api_error(error.errors(include_url=False, include_input=False)[0]) from None
    if request.top_logprobs is not None and not request.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", "top_logprobs")
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        raise ApiError(400, "max_tokens is the old name of max_completion_tokens; send one of them", "max_tokens")
    if request.stream_options is not None and not request.stream:
        raise ApiError(400, "stream_options needs stream: true", "stream_options")
    if request.tool_choice is not None and not request.tools:
        raise ApiError(400, "tool_choice needs tools", "tool_choice")
    return request


def _api_error(error: ErrorDetails) -> ApiError:
    """Convert pydantic's first error, with the field's name as the sender wrote it."""
    if error["type"] == "json_invalid":
        return ApiError(400, f"the body is no JSON: {error['msg'].removeprefix('Invalid JSON: ')}", code="invalid_json")
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).lstrip(".")
    reason = "this server does not support the field" if error["type"] == "extra_forbidden" else error["msg"]
    where = f"{field}: " if field else ""
    return ApiError(400, where + reason.removeprefix("Value error, "), field or None, _CODES.get(error["type"], "invalid_value"))
