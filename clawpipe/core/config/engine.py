"""Settings of the engine that samples tokens, and of its servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.block import Extension, plain_url


@dataclass(frozen=True)
class Server:
    """What a night must know of an engine that is a server, before it asks it.

    key: environment variable with its key.
    holds: "adapters" (it loads the night's adapters beside its base), "policies" (a service that keeps the policies itself, and has
        log-probs at temperature 1 alone) or "model" (an endpoint of one model, into which nothing is loaded).
    starts: a night can start it.
    variants: values of `train.lora.variant` whose adapters it reads. vLLM refuses DoRA; SGLang has none either, and scales every
        adapter by alpha / rank.
    """

    key: str
    holds: Literal["adapters", "policies", "model"]
    starts: bool = False
    variants: tuple[str, ...] = ("lora", "rslora", "dora")


SERVERS = {
    "vllm": Server("VLLM_API_KEY", "adapters", starts=True, variants=("lora", "rslora")),
    "sglang": Server("SGLANG_API_KEY", "adapters", variants=("lora",)),
    "openai": Server("OPENAI_API_KEY", "model"),
    "tinker": Server("TINKER_API_KEY", "policies"),
}
KEYS = {name: server.key for name, server in SERVERS.items()}
TIS_CAP = 2.0  # of the importance weight between trainer and engine, where they compute differently

_IN_RESULTS = ("model", "dtype", "arguments", "tokens", "loads_adapters")

Dtype = Literal["float32", "bfloat16", "float16"]


class EngineSpec(Extension):
    """Settings of the engine that samples tokens."""

    name: str = Field(
        default="embedded",
        description="embedded (transformers, in this process), vllm, sglang, openai (an endpoint), tinker (a service that speaks "
        "Tinker's API), or path/to/file.py:ClassName",
    )
    options: Options = Field(default_factory=dict, description="arguments of the engine's constructor")
    url: tuple[str, ...] = Field(
        default=(),
        description="URLs of the servers; those of openai end with /v1; tinker has one, or none: the one that its library knows",
    )
    model: str | None = Field(
        default=None, description="name of the model at the server; null: the only one that it serves; openai and tinker need one"
    )
    dtype: Dtype | None = Field(default=None, description="dtype in which the server computes; null: model.dtype")
    python: str | None = Field(
        default=None, description="Python of an environment with vLLM: the night starts a server with it, in place of `url`"
    )
    arguments: tuple[str, ...] = Field(default=(), description="further arguments of the server that the night starts")
    tokens: bool = Field(
        default=False,
        description="whether openai requests ask for token ids and log-probs, as vLLM, clawpipe serve and gateways give them",
    )
    loads_adapters: bool = Field(
        default=False, description="whether an engine of yours is a server that loads the night's adapters, as vllm and sglang do"
    )
    concurrency: int = Field(default=64, ge=1, description="requests at once, over all servers")
    timeout: float = Field(default=300.0, gt=0, description="seconds that a request may take")

    @property
    def holds(self) -> str | None:
        """What the engine holds as a server, see `Server`; None: it computes here."""
        known = SERVERS.get(self.name)
        return known.holds if known else "adapters" if self.loads_adapters else None

    @property
    def is_policy_server(self) -> bool:
        """Whether the engine is a server that loads the night's policies, and whose computation differs from the trainer's."""
        return self.holds == "adapters" or self.is_service

    @property
    def is_service(self) -> bool:
        """Whether the engine is a service that keeps the policies itself, and has log-probs at temperature 1 alone."""
        return self.holds == "policies"

    @property
    def is_endpoint(self) -> bool:
        """Whether the engine is a model at an endpoint, into which the night's policies are not loaded."""
        return self.holds == "model"

    @property
    def text_only(self) -> bool:
        """Whether the engine returns text without tokens."""
        return self.is_endpoint and not self.tokens

    def differs(self, dtype: str) -> bool:
        """Whether the engine's log-probs differ from those of a trainer in `dtype` by more than the order of summation explains."""
        apart = (self.is_policy_server and not self.is_service) or self.tokens  # a service samples and trains by one computation
        return apart and (self.dtype or dtype, dtype) != ("float32", "float32")

    def computes_in(self, dtype: str) -> str:
        """Return the dtype in which the engine computes a policy of `dtype`."""
        return self.dtype or ("bfloat16" if self.is_service else dtype)

    def result_fields(self) -> frozenset[str]:
        """Return the fields that can change a result; the server's place and the request rate cannot."""
        return frozenset({"name", "options"} | {name for name in _IN_RESULTS if getattr(self, name)})

    @field_validator("url", mode="before")
    @classmethod
    def _from_one(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("url")
    @classmethod
    def _is_plain(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(plain_url(url, " or ".join(KEYS.values())) for url in value)

    @model_validator(mode="after")
    def _is_where_it_can_be(self) -> EngineSpec:
        known = SERVERS.get(self.name)
        if self.holds in ("adapters", "model") and not self.url and not self.python:
            raise ValueError(f"`{self.name}` is a server: set `url`, e.g. url: http://127.0.0.1:8000")
        if self.loads_adapters and self.name in ("embedded", *SERVERS):
            raise ValueError("`loads_adapters` is for an engine of yours: clawpipe knows which of its own load adapters")
        if not self.holds and (self.url or self.model or self.dtype):
            raise ValueError(
                f"`{self.name}` is no server: `url`, `model` and `dtype` belong to {' and '.join(SERVERS)}, and to an engine of "
                "yours with `loads_adapters`"
            )
        if self.python and (self.url or not known or not known.starts):
            raise ValueError("`python` starts a server of vllm in place of one at `url`: set one of them")
        if self.tokens and not self.is_endpoint:
            raise ValueError("`tokens` belongs to `openai`: other engines always give them")
        if (self.is_endpoint or self.is_service) and not self.model:
            raise ValueError(f"`{self.name}` needs the name of the model there: set `model`")
        if self.is_service and len(self.url) > 1:
            raise ValueError("`tinker` is one service: set one `url`, or none")
        return self
