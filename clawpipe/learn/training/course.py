"""A night's training as a whole: rounds that share one optimizer, and which of them a training is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.refs import ModelRef, OptimizerRef
from clawpipe.errors import ConfigError

_FIX = "give a round the state that the round before it left, and the first round none"


class Course(BaseModel):
    """The place of one training in its night."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(description="seed of the night's training; nights with other labels have others")
    start: str = Field(description="version of the policy that the first round starts from")
    rounds: int = Field(default=1, ge=1, description="planned rounds of the night")
    number: int = Field(default=0, ge=0, description="this training's round, from 0")

    @property
    def rounds_left(self) -> int:
        """The rounds from this one on."""
        return self.rounds - self.number

    @property
    def night(self) -> str:
        """A digest that the rounds of one night share, and no two nights."""
        return sha256_json([self.seed, self.start, self.rounds])[:24]

    def require(self, optimizer: OptimizerRef, policy: ModelRef) -> None:
        """Raise unless the optimizer's state is that of this night and of the policy that the round trains.

        Raises:
            ConfigError: its moments belong to other gradients.
        """
        if optimizer.night != self.night:
            raise ConfigError("the optimizer's state is that of another night", optimizer.digest[:12], _FIX)
        if optimizer.policy_version != policy.policy_version:
            what = f"the optimizer's state belongs to policy {optimizer.policy_version}, not to {policy.policy_version}"
            raise ConfigError(what, optimizer.digest[:12], _FIX)
