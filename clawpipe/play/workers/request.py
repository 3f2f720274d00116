"""Requests to a worker: one JSON object per line on its standard input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject, Options, Row
from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.environment import EnvironmentSpec
from clawpipe.model.engines.witness import Witness
from clawpipe.model.policy.spec import PolicySpec


class Context(BaseModel):
    """A token history, and the positions whose distributions are compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ids: tuple[int, ...]
    positions: tuple[int, ...] = Field(description="indices (at least 1) of the tokens whose predictive distributions are compared")


def choose_contexts(rows: Sequence[Row], wanted: int) -> list[Context]:
    """Choose trajectories spread evenly over `rows` until they have `wanted` sampled tokens, or all of them.

    Args:
        rows: token_ids and loss_mask of trajectories, in the order of the held-out items.
        wanted: sampled tokens.
    """
    sampled = [[place for place, mask in enumerate(row["loss_mask"]) if mask and place] for row in rows]
    average = sum(map(len, sampled)) / max(len(rows), 1)
    count = min(max(round(wanted / average), 1), len(rows)) if average else 0
    chosen = [len(rows) * number // count for number in range(count)]
    return [Context(ids=rows[row]["token_ids"], positions=tuple(sampled[row])) for row in chosen if sampled[row]]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ResolveRequest(_Request):
    """Fetch or convert a base model."""

    do: Literal["resolve"] = "resolve"
    name: str


class ShardRequest(_Request):
    """Roll out some items, as one batch, into one Parquet file."""

    do: Literal["shard"] = "shard"
    policy: PolicySpec
    engine: EngineSpec = EngineSpec()
    environment: str
    options: Options
    call_timeout: float = Field(default=EnvironmentSpec().call_timeout, description="see EnvironmentSpec")
    python: str | None = Field(default=None, description="see EnvironmentSpec")
    label: str | None = Field(default=None, description="of the environment, where it is one of several")
    items: list[Row] = Field(description="rows of the task_items contract")
    prompts: list[list[JsonObject]] | None = Field(
        default=None, description="messages that the policy sees instead of each item's own; what is recorded and verified stays"
    )
    group_size: int
    temperature: float
    max_new_tokens: int
    max_turns: int
    waves: int = 1
    seed: int
    witness: Witness | None = Field(default=None, description="by which servers are known that hold the policy")

    @property
    def played(self) -> EnvironmentSpec:
        """The environment, as settings name it."""
        return EnvironmentSpec(name=self.environment, options=self.options, call_timeout=self.call_timeout, python=self.python)


def turns_of(output: Path) -> Path:
    """Return the file in which turns of a shard are kept until it is done; it outlives the shard's directory."""
    return output.parent.with_suffix(".turns")


class ScoreRequest(_Request):
    """Compute the log-probs of given tokens under a policy (teacher forcing)."""

    do: Literal["score"] = "score"
    policy: PolicySpec
    ids: list[int]
    start: int
    temperature: float = 1.0


class AnswerRequest(_Request):
    """Answer token histories with one turn each: the likeliest tokens, as one batch."""

    do: Literal["answer"] = "answer"
    policy: PolicySpec
    prompts: list[list[int]]
    max_new_tokens: int
    stop_ids: tuple[int, ...] = Field(description="tokens any of which ends a turn")


class CheckRequest(_Request):
    """Compare the engine's log-probs with those of the model's own forward."""

    do: Literal["check"] = "check"
    policy: PolicySpec
    engine: EngineSpec = EngineSpec()


class MergeRequest(_Request):
    """Make a policy's adapter part of its base's weights."""

    do: Literal["merge"] = "merge"
    policy: PolicySpec


class DivergenceRequest(_Request):
    """Compute the mean KL divergence of policies from a reference, on some contexts."""

    do: Literal["divergence"] = "divergence"
    reference: PolicySpec
    others: tuple[PolicySpec, ...]
    contexts: tuple[Context, ...]


Request = Annotated[
    ResolveRequest | ShardRequest | ScoreRequest | AnswerRequest | CheckRequest | MergeRequest | DivergenceRequest,
    Field(discriminator="do"),
]


class Job(_Request):
    """A request, and the place for its result."""

    request: Request
    output: str | None = Field(default=None, description="Parquet file to write, or directory of the merged model")
