"""Settings of the environments that make a night's items."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.block import MOST_ITEMS, Block, Extension

CONVERSATIONS = "conversations"  # the environment of nights whose verdict rests on held-out conversations
LABEL = r"^[A-Za-z0-9._-]{1,48}$"
Label = Annotated[str, Field(pattern=LABEL)]


class EnvironmentSpec(Extension):
    """An environment, without the number of items drawn from it."""

    name: str = Field(default="shop", description="built-in name, or path/to/file.py:ClassName")
    options: Options = Field(default_factory=dict, description="arguments of the environment's constructor")
    call_timeout: float = Field(
        default=300.0,
        gt=0,
        description="most seconds of a call of your own environment; one of an episode that takes longer ends it as `timeout`",
    )
    python: str | None = Field(
        default=None, description="Python with your own environment's packages, which it then runs in; null: that of clawpipe"
    )

    def result_fields(self) -> frozenset[str]:
        return super().result_fields() - {"python"}  # keys hold its version and packages, wherever they lie

    @property
    def parts(self) -> tuple[EnvironmentSpec, ...]:
        """The one environment, as `Environments` has several."""
        return (self,)


class _Counts(Block):
    train_items: int = Field(default=128, ge=1, le=MOST_ITEMS, description="task items that rounds draw from")
    heldout_items: int = Field(
        default=160,
        ge=1,
        le=MOST_ITEMS,
        description="items for the verdict: never trained on, and new every night while there are new ones",
    )
    benchmark_items: int = Field(
        default=64,
        ge=0,
        le=MOST_ITEMS,
        description="held-out items that are the same every night: they show the trend and do not affect the verdict",
    )
    seed: int = Field(default=0, description="seed of the items; the night's label is part of it")


class EnvironmentConfig(_Counts, EnvironmentSpec):
    """One environment, and the numbers of items."""

    @property
    def weights(self) -> list[float]:
        """The one environment's share, as `DrawnEnvironments` has several."""
        return [1.0]


class WeightedEnvironment(EnvironmentSpec):
    """One of several environments."""

    name: str = Field(description="built-in name, or path/to/file.py:ClassName")
    weight: float = Field(default=1.0, gt=0, description="share of the items, in proportion to the others' weights")
    label: Label | None = Field(
        default=None, description="what rows, slices and reports call it; null: the environment's own name, a second one shop-2"
    )


class Environments(Block):
    """Several environments of one night."""

    parts: tuple[WeightedEnvironment, ...] = Field(min_length=1)


class DrawnEnvironments(_Counts, Environments):
    """Several environments, and the numbers of items over all of them."""

    @property
    def weights(self) -> list[float]:
        """The share of each environment."""
        return [part.weight for part in self.parts]


Played: TypeAlias = EnvironmentSpec | Environments  # what episodes are played in, and verified by
Drawn: TypeAlias = EnvironmentConfig | DrawnEnvironments  # what items are drawn from
