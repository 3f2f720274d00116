"""What a check of the trainer is asked: a policy, and how to load or build it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.config.quantization import Quantization
from clawpipe.core.config.training import Train
from clawpipe.learn.training.backends import Scores, open_backend
from clawpipe.learn.training.request import TrainRequest
from clawpipe.model.policy.agreement import Bound, SampledRow, bound_of, coarser
from clawpipe.model.policy.spec import PolicySpec


class TrainerCheckRequest(BaseModel):
    """The policy to check: loaded as annotation loads it, or, with `train`, built as training builds it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: PolicySpec
    train: Train | None
    sampled: tuple[SampledRow, ...] = Field(default=(), description="rows to compare with, where the weights are elsewhere")
    device: str = "auto"
    threads: int = Field(default=0, ge=0, description="CPU threads; 0 uses every core")

    @property
    def has_scores(self) -> bool:
        """Whether what trains computes log-probs of given tokens, so that they can be compared."""
        return self.train is None or self.train.backend.is_local or isinstance(open_backend(self.train.backend), Scores)

    @property
    def bound(self) -> Bound:
        """How far the log-probs may be apart; services compute in bfloat16."""
        here = self.train is None or self.train.backend.is_local
        return bound_of(self.policy.dtype if here else coarser(self.policy.dtype, "bfloat16"), self.quantization)

    @property
    def quantization(self) -> Quantization:
        """The quantization of the base; a model whose weights are all trained is not quantized."""
        return "none" if self.train and self.train.adapter == "full" else self.policy.quantization

    def training(self, config: Train) -> TrainRequest:
        """Return a training request without rows, which builds the same model as one with rows."""
        return TrainRequest(
            samples=(),
            base=self.policy.base,
            base_digest="",
            dtype=self.policy.dtype,
            quantization=self.quantization,
            init_adapter=self.policy.adapter,
            config=config,
            temperature=1.0,
            seed=0,
            device=self.device,
            threads=self.threads,
            output="",
        )
