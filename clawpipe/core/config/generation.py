"""How items are rolled out."""

from __future__ import annotations

from pydantic import Field, model_validator

from clawpipe.core.config.block import Block, Fraction
from clawpipe.core.config.engine import EngineSpec


class Generation(Block):
    """How an item is rolled out."""

    group_size: int = Field(default=8, ge=1, description="rollouts per item")
    temperature: float = Field(default=0.8, ge=0, description="sampling temperature; 0 is greedy")
    max_new_tokens: int = Field(default=24, ge=1, description="most sampled tokens of a turn")
    max_turns: int = Field(default=4, ge=1, description="most assistant turns of an episode")
    shard_rollouts: int = Field(default=64, ge=1, description="rollouts per shard file, generated as one batch")
    waves: int = Field(
        default=1, ge=1, le=16, description="parts of a shard: while one generates, slow tools answer the others, in threads"
    )
    engine: EngineSpec = EngineSpec()

    def result_fields(self) -> frozenset[str]:
        at_default = {"engine"} if self.engine == EngineSpec() else set[str]()
        return super().result_fields() - at_default - ({"waves"} if self.waves == 1 else set())

    def once(self, temperature: float) -> Generation:
        """Return settings for a single rollout per item, at this temperature."""
        return self.model_copy(update={"group_size": 1, "temperature": temperature})


class Difficulty(Block):
    """The draw of a round's items: those of a middling pass rate first. The pass rate is that of the last round that tried an item,
    tonight or in an earlier night of the same environment and base."""

    low: Fraction = Field(default=0.2, description="least pass rate of the items that come first")
    high: Fraction = Field(default=0.8, description="greatest pass rate of the items that come first")
    unseen: Fraction = Field(default=0.5, description="least share of the items that no round has tried, as long as there are any")
    levels: bool = Field(
        default=False,
        description="of slices that end in /level-1, /level-2 and so on, draw from one level: at first the lowest, the next one "
        "after a round whose rate there is above `high`, the one before after a rate below `low`",
    )

    @model_validator(mode="after")
    def _low_is_not_above_high(self) -> Difficulty:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) exceeds high ({self.high})")
        return self

    def result_fields(self) -> frozenset[str]:
        return super().result_fields() - (set() if self.levels else {"levels"})


class Rollouts(Generation):
    items: int = Field(default=32, ge=1, description="task items per round")
    temperature: float = Field(default=0.8, gt=0, description="sampling temperature")
    chunks: int = Field(default=16, ge=1, le=64, description="number of tasks that generate a round, for any number of rollouts")
    difficulty: Difficulty | None = Field(default=None, description="draw items by their pass rates; null: each in its turn")

    def result_fields(self) -> frozenset[str]:
        return super().result_fields() - (set() if self.difficulty else {"difficulty"})
