"""What a generation worker is asked for. Plain JSON on its standard input."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.policy.spec import PolicySpec


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
    environment: str
    options: dict[str, Any]
    items: list[dict[str, Any]] = Field(description="rows of the task_items contract")
    group_size: int
    temperature: float
    max_new_tokens: int
    max_turns: int
    seed: int


class ScoreRequest(_Request):
    """Teacher-forced log-probs of a token list under a policy."""

    do: Literal["score"] = "score"
    policy: PolicySpec
    ids: list[int]
    start: int


class Job(_Request):
    """A request, and where its result goes."""

    request: Annotated[ResolveRequest | ShardRequest | ScoreRequest, Field(discriminator="do")]
    output: str | None = Field(default=None, description="Parquet file to write, for a shard")
