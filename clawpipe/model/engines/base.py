"""The engine protocol: token ids in, sampled token ids and their log-probs out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.user_code.extensions import ExtensionPoint
from clawpipe.model.policy.spec import PolicySpec

if TYPE_CHECKING:
    from torch import Tensor

    from clawpipe.model.engines.witness import Witness
    from clawpipe.model.policy.layout import Layout


class Completion(NamedTuple):
    """One sampled continuation.

    ids: sampled tokens, the end-of-turn token included when the model produced it.
    logprobs: natural log-prob of each, at the sampling temperature over the full vocabulary (temperature 1 when greedy).
    finish_reason: "stop" (ended by the end-of-turn token) or "length".
    """

    ids: list[int]
    logprobs: list[float]
    finish_reason: str


class Likelihood(NamedTuple):
    """Log-probs of a sampled token and of the likeliest tokens at its place, at temperature 1 over the full vocabulary.

    logprob: natural log-prob of the sampled token.
    top: (token, log-prob) of the likeliest tokens, best first; the sampled one may be among them.
    """

    logprob: float
    top: list[tuple[int, float]]


@dataclass(frozen=True)
class Sampling:
    """How a turn is sampled. Temperature 0 is greedy; `max_new_tokens` is the most tokens of a turn; any of `stop_ids`
    ends one.

    `top_p` below 1 draws from the nucleus: the fewest likeliest tokens that hold this much of the tempered distribution. Recorded
    log-probs stay those over the full vocabulary, so tokens that are to be trained on are sampled with 1.
    """

    temperature: float
    max_new_tokens: int
    stop_ids: tuple[int, ...] = ()
    top_p: float = 1.0


class Conversations(Protocol):
    """A batch of token histories that grow side by side, one a row; an engine computes each history once."""

    def extend(self, tokens: dict[int, Sequence[int]]) -> None:
        """Append the environment's tokens to some rows."""
        ...

    def sample(self, seeds: dict[int, int], sampling: Sampling) -> dict[int, Completion]:
        """Sample one turn for each row in `seeds`, and append it to the row. Equal seeds give equal turns."""
        ...

    def stream(self, row: int, seed: int, sampling: Sampling, top: int = 0) -> Generator[tuple[int, Likelihood], None, None]:
        """Sample the turn that `sample` gives for one row, and yield it token by token, with the `top` likeliest rivals of each."""
        ...


class Engine(Protocol):
    """One policy, ready to sample.

    An engine is made by `factory(base, adapter, dtype, device, quantization, **options)`: directories of the base model and of the
    adapter (None without one), "float32" or "bfloat16", a torch device or "auto", and one of clawpipe.core.config.quantization.
    """

    @property
    def context(self) -> int:
        """The most tokens that a history may have."""
        ...

    def begin(self, prompts: Sequence[Sequence[int]]) -> Conversations:
        """Start a batch of conversations; prompts are token ids, of different lengths, each of at least one token."""
        ...


@runtime_checkable
class Rescores(Protocol):
    """An engine that also computes the log-probs of given tokens."""

    def score(self, ids: Sequence[int], start: int, temperature: float = 1.0) -> list[float]:
        """Return the natural log-probs of `ids[start:]` (start >= 1), each given the tokens before it."""
        ...


@runtime_checkable
class Scores(Rescores, Protocol):
    """An engine that computes the log-probs of all tokens as well."""

    def distributions(self, ids: Sequence[int], positions: Sequence[int], temperature: float = 1.0) -> Tensor:
        """Return float32 log-probs [P, V] of every token of the vocabulary at P positions (>= 1), given the tokens before each."""
        ...


@runtime_checkable
class Closes(Protocol):
    """An engine with resources outside of this process, such as an adapter on a server, which `close` releases."""

    def close(self) -> None: ...


@runtime_checkable
class Remembers(Protocol):
    """An engine whose turns cost money: what it answered is kept in a file, so that a killed shard does not pay for it again."""

    def remember(self, file: Path | None) -> None:
        """Keep turns in this file from now on, and take those that it holds; None: keep none."""
        ...


@runtime_checkable
class OnServers(Protocol):
    """An engine on servers that hold the policy, each of which can be wrong by itself."""

    def each(self) -> dict[str, Any]:
        """Return the servers that answer by their URLs, each as an `Engine`."""
        ...

    def require(self, witness: Witness) -> None:
        """Compare each server with the policy, and from now on every server that comes back; raise DataError if one is another."""
        ...


@runtime_checkable
class Described(Protocol):
    """An engine with a description of the sampler: name, version and settings, without URL or secret, stored with the rollouts."""

    described: JsonObject


@runtime_checkable
class HoldsModel(Protocol):
    """An engine with the model in its own process: before a night, its log-probs are compared with that model's plain forward.

    The policy of any other engine is loaded a second time for this comparison.
    """

    model: Any
    layout: Layout


# An endpoint gives text, and is no Engine.
_SERVERS = {"vllm": "vllm:VllmEngine", "sglang": "sglang:SglangEngine", "openai": "chat:ChatModel", "tinker": "tinker:TinkerEngine"}
_BUILT_IN = {
    # Named in full, so that every step with workers has it in its key: it scores tokens, whatever engine has sampled them.
    "embedded": "clawpipe.model.engines.embedded:EmbeddedEngine",
    # Made by name, so that a step has only the one in its key that its settings name.
    **{name: f"{__package__}.{place}" for name, place in _SERVERS.items()},
}
ENGINES = ExtensionPoint("engine", "rollouts.engine", _BUILT_IN, members=("context", "begin"))


def open_engine(engine: EngineSpec, policy: PolicySpec, device: str) -> Engine:
    """Load a policy into the engine that the settings name.

    Raises:
        NotFoundError, ConfigError: no such engine, or it does not take these options, see `ExtensionPoint.make`.
    """
    adapter = Path(policy.adapter) if policy.adapter else None
    where = {"server": engine, "version": policy.policy_version} if engine.is_policy_server else {}
    where |= {"remote": policy.remote} if engine.is_service else {}
    return ENGINES.make(engine.name, engine.options | where, Path(policy.base), adapter, policy.dtype, device, policy.quantization)
