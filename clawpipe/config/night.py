"""Settings of a night. Each block belongs to one step; a step's key holds its own block and no other.

Whatever does not change results (devices, workers, time limits) lives in `Runtime`, which is in no key.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Block(BaseModel):
    """A block of settings: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Model(Block):
    base: str = Field(default="smollm2-135m-instruct", description="built-in name, hub id or local directory of the base model")
    calls: Literal["pythonic", "hermes"] = Field(default="pythonic", description="how the model writes a tool call")
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"


class EnvironmentConfig(Block):
    name: str = Field(default="shop", description="built-in name, or path/to/file.py:ClassName")
    train_items: int = Field(default=128, ge=1, description="task items that rounds draw from")
    heldout_items: int = Field(default=160, ge=1, description="task items that are never trained on")
    seed: int = 0
    options: dict[str, Any] = Field(default_factory=dict, description="handed to the environment's constructor")


class Rollouts(Block):
    items: int = Field(default=32, ge=1, description="task items a round")
    group_size: int = Field(default=8, ge=1, description="rollouts an item")
    temperature: float = Field(default=0.8, gt=0)
    max_new_tokens: int = Field(default=24, ge=1, description="limit a turn")
    max_turns: int = Field(default=4, ge=1, description="assistant turns an episode")
    chunks: int = Field(default=16, ge=1, le=64, description="tasks a round is cut into, whatever the number of rollouts")
    shard_rollouts: int = Field(default=64, ge=1, description="rollouts a shard file, generated as one batch")


class Curation(Block):
    max_tokens: int = Field(default=4096, ge=8, description="longer trajectories are set aside")
    drop_constant_groups: bool = True
    advantage: Literal["group", "none", "batch"] = Field(default="group", description="what the centred rewards are divided by")


class Lora(Block):
    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: Fraction = 0.0
    target_modules: str | tuple[str, ...] = "all-linear"


class Loss(Block):
    """Policy loss on recorded tokens; formulas in clawpipe.training.losses."""

    objective: Literal["ppo", "cispo", "reinforce", "sft"] = "ppo"
    level: Literal["token", "sequence"] = Field(default="token", description="level of the importance ratio; sequence is GSPO")
    clip_low: float = Field(default=0.2, ge=0, lt=1)
    clip_high: float = Field(default=0.28, ge=0)
    dual_clip: float | None = Field(default=3.0, gt=1)
    tis_cap: float | None = Field(default=None, gt=0, description="cap of the truncated importance weight proximal/behaviour")
    icepop: tuple[float, float] | None = Field(default=None, description="keep tokens whose proximal/behaviour weight is inside")
    opsm_delta: float | None = Field(
        default=None, ge=0, description="mask sequences of negative advantage that drifted further than this"
    )
    kl_coef: float = Field(default=0.0, ge=0, description="k3 penalty towards the reference policy")


class Train(Block):
    method: Literal["grpo", "sft"] = "grpo"
    start_from: Literal["base", "champion"] = Field(default="base", description="what the first round's policy is")
    learning_rate: float = Field(default=3e-4, gt=0)
    updates: int = Field(default=4, ge=1, description="optimiser updates an epoch over a round's samples")
    epochs: int = Field(default=1, ge=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    pack_tokens: int = Field(default=1024, ge=64, description="tokens a packed sequence, shared prefixes counted once")
    checkpoint_seconds: float = Field(default=120.0, gt=0)
    lora: Lora = Lora()
    loss: Loss = Loss()


class Evaluation(Block):
    temperature: float = Field(default=0.0, ge=0, description="0 is greedy")
    confidence: float = Field(default=0.95, gt=0, lt=1, description="level of the intervals in the report; it decides nothing")


class Gate(Block):
    alpha: float = Field(default=0.05, gt=0, lt=1, description="one-sided level of the paired test, for better and for worse")
    min_effect: float = Field(default=0.02, ge=0, le=1, description="smallest gain in success worth a promotion")
    min_items: int = Field(default=50, ge=1, description="paired held-out items without which nothing is decided")
    slice_margin: Fraction = Field(default=0.1, description="how much worse a slice may be before it counts as a regression")


class Registry(Block):
    model_name: Name = "clawpipe-agent"


class Runtime(Block):
    """Settings that change how fast or where, never what: in no step's key."""

    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:N")
    workers: int = Field(default=0, ge=0, description="generation processes; 0 chooses by cores or GPUs")
    train_threads: int = Field(default=0, ge=0, description="CPU threads of the trainer; 0 uses every core")
    step_timeout: float = Field(default=7200.0, gt=0, description="seconds a subprocess may take")


class NightConfig(Block):
    """One night: from task items, or from stored data, to a verdict."""

    night: str = Field(default="{date}", description="label; the same label and settings are the same night. {date} is today")
    seed: int = 0
    rounds: int = Field(default=3, ge=1, description="each round generates under the policy that the last one trained")
    model: Model = Model()
    environment: EnvironmentConfig = EnvironmentConfig()
    rollouts: Rollouts | None = Field(default=Rollouts(), description="null: train on stored trajectories only")
    trajectories: tuple[str, ...] = Field(default=(), description="digests of stored trajectory datasets to train on as well")
    curation: Curation = Curation()
    train: Train = Train()
    evaluation: Evaluation = Evaluation()
    gate: Gate = Gate()
    registry: Registry = Registry()
    runtime: Runtime = Runtime()

    @model_validator(mode="after")
    def _has_a_source(self) -> NightConfig:
        if self.rollouts is None and not self.trajectories:
            raise ValueError("nothing to learn from: set `rollouts`, or name stored datasets in `trajectories`")
        if self.rollouts and self.rollouts.items > self.environment.train_items:
            raise ValueError(
                f"rollouts.items ({self.rollouts.items}) exceeds environment.train_items ({self.environment.train_items})"
            )
        return self
