"""Settings of the environment that makes a night's items."""

from __future__ import annotations

from pydantic import Field

from clawpipe.config.block import Extension
from clawpipe.json_types import Options

CONVERSATIONS = "conversations"  # the environment of nights whose verdict rests on held-out conversations


class EnvironmentSpec(Extension):
    """An environment, without the number of items drawn from it."""

    name: str = Field(default="shop", description="built-in name, or path/to/file.py:ClassName")
    options: Options = Field(default_factory=dict, description="arguments of the environment's constructor")
    call_timeout: float = Field(
        default=300.0,
        gt=0,
        description="most seconds of a call in an episode of your own environment; one that takes longer ends it as `timeout`",
    )


class EnvironmentConfig(EnvironmentSpec):
    train_items: int = Field(default=128, ge=1, description="task items that rounds draw from")
    heldout_items: int = Field(
        default=160,
        ge=1,
        description="items for the verdict: never trained on, and new every night while there are new ones",
    )
    benchmark_items: int = Field(
        default=64,
        ge=0,
        description="held-out items that are the same every night: they show the trend and do not affect the verdict",
    )
    seed: int = Field(default=0, description="seed of the items; the night's label is part of it")
