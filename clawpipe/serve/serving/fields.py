"""Fields that the requests of /v1/chat/completions and /v1/completions share, and the fields that both refuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from clawpipe.serve.serving.errors import ApiError, parsed

MOST_CHOICES = 32
_MAX_STOPS = 64  # OpenAI takes four, Anthropic's clients send more
_MAX_STOP_LENGTH = 256  # searched for after every token
_REFUSED = (  # other servers change what they sample or answer for these
    *("audio", "functions", "function_call", "web_search_options", "use_beam_search", "length_penalty"),
    *(
        "min_tokens",
        "ignore_eos",
        "stop_token_ids",
        "bad_words",
        "allowed_token_ids",
        "truncate_prompt_tokens",
        "logits_processors",
    ),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "prompt_logprobs", "suffix"),
    *("add_generation_prompt", "continue_final_message", "chat_template", "tokens", "input", "mirostat", "grammar", "typical_p"),
    *("truncate_prompt_tokens", "reasoning"),
)
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {  # values of these fields that change nothing
    **dict.fromkeys(("min_tokens", "mirostat"), (0,)),
    **dict.fromkeys(("ignore_eos", "use_beam_search", "continue_final_message"), (False,)),
    **dict.fromkeys(("functions", "stop_token_ids", "bad_words", "allowed_token_ids", "logits_processors"), ([],)),
    **dict.fromkeys(("length_penalty", "typical_p"), (1,)),
    **{"add_generation_prompt": (True,), "suffix": ("",)},
}
Stop = Annotated[str, Field(min_length=1, max_length=_MAX_STOP_LENGTH)]


class Block(BaseModel):
    """A strict model: no coercion, no NaN. Fields that nobody here knows change nothing, as on other servers."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, frozen=True)


def only(neutral: Any) -> AfterValidator:
    """Accept only a value that changes nothing (one of a tuple)."""
    allowed = neutral if isinstance(neutral, tuple) else (neutral,)

    def check(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"not supported; leave it out or send {' or '.join(map(json.dumps, allowed))}")
        return value

    return AfterValidator(check)


def wrapped(kind: type, wrap: Callable[[Any], Any]) -> BeforeValidator:
    """Accept the short form of a list."""
    return BeforeValidator(lambda value: wrap(value) if isinstance(value, kind) else value)


def _token_ids(bias: dict[str, float]) -> dict[str, float]:
    for token, value in bias.items():
        if not token.isascii() or not token.isdigit() or not -100 <= value <= 100:
            raise ValueError("maps token ids to numbers from -100 to 100")
    return bias


class StreamOptions(Block):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # of no effect: nothing here is padded against whoever counts bytes


class SamplingFields(Block):
    """How answers are sampled and returned."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0, le=2)
    logit_bias: Annotated[dict[str, float], Field(max_length=1024), AfterValidator(_token_ids)] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Annotated[list[Stop], Field(max_length=_MAX_STOPS), wrapped(str, lambda text: [text])] | None = None
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    return_token_ids: bool | None = None
    user: str | None = None
    session_id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, body: Any) -> Any:
        """Refuse what would change the answer on another server. Raises ApiError (400)."""
        for name in _REFUSED if isinstance(body, dict) else ():
            if body.get(name) not in (None, *_NEUTRAL.get(name, ())) and name not in cls.model_fields:
                raise ApiError(400, f"{name}: this server does not support the field", name, "unsupported_parameter")
        return body

    @property
    def top(self) -> int | None:
        """Number of likeliest tokens to report per token; None: no log-probs at all."""
        raise NotImplementedError

    @property
    def limit(self) -> int | None:
        """Number of tokens that the answer may have; None: what is left of the context."""
        return self.max_tokens

    @property
    def with_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


Kind = TypeVar("Kind", bound=SamplingFields)


def parse_fields(kind: type[Kind], body: bytes) -> Kind:
    """Parse a request. Raises ApiError (400) if it is no JSON, or a field is wrong or not supported."""
    request = parsed(kind, body)
    if request.stream_options is not None and not request.stream:
        raise ApiError(400, "stream_options needs stream: true", "stream_options")
    return request
