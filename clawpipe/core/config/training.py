"""Settings of a training run: method, loss, adapter. Formulas are in clawpipe.learn.training."""

from __future__ import annotations

import math
import re
from importlib.metadata import entry_points
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from clawpipe.core.config.backend import BackendSpec
from clawpipe.core.config.block import Block, Fraction, renamed
from clawpipe.core.config.methods import METHODS, Method, MethodName, MethodSettings
from clawpipe.core.config.methods import Combine as Combine
from clawpipe.core.config.methods import Dpo as Dpo
from clawpipe.core.config.methods import Opd as Opd
from clawpipe.core.config.methods import Ppo as Ppo

OBJECTIVES = ("ppo", "cispo", "reinforce", "sft")  # functions of clawpipe/learn/training/losses/policy.py
_STEPS = 4  # optimizer steps per epoch by default


class Lora(Block):
    rank: int = Field(default=16, ge=1, description="rank of the two matrices that are trained beside each weight matrix")
    alpha: int = Field(default=32, ge=1, description="their product is scaled by alpha / rank")
    dropout: Fraction = Field(default=0.0, description="share of the adapter's inputs that training leaves out")
    target_modules: str | tuple[str, ...] = Field(default="all-linear", description="names of the modules that get an adapter")
    variant: Literal["lora", "rslora", "dora"] = Field(default="lora", description="rslora scales by alpha / sqrt(rank)")

    @field_validator("target_modules")
    @classmethod
    def _name_modules(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        names = (value,) if isinstance(value, str) else value
        if not names or not all(names):
            raise ValueError("no module has an empty name: use all-linear, or names such as [q_proj, v_proj]")
        try:
            re.compile(value if isinstance(value, str) else "")
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression: {error}") from None
        return value


class Loss(Block):
    """Policy loss on recorded tokens; formulas in clawpipe.learn.training.losses.policy."""

    objective: str = Field(default="ppo", description=f"token loss: {', '.join(OBJECTIVES)}, or path/to/file.py:NAME")
    level: Literal["token", "sequence"] = Field(default="token", description="level of the importance ratio; sequence is GSPO")
    clip_low: float = Field(default=0.2, ge=0, lt=1, description="the ratio is clipped below 1 - clip_low")
    clip_high: float = Field(default=0.28, ge=0, description="the ratio is clipped above 1 + clip_high")
    dual_clip: float | None = Field(default=3.0, gt=1, description="greatest ratio that counts for a negative advantage; null: any")
    tis_cap: float | None = Field(default=None, gt=0, description="cap of the truncated importance weight proximal/behaviour")
    icepop: tuple[float, float] | None = Field(
        default=None, description="keep tokens whose proximal/behaviour weight is in this range"
    )
    opsm_delta: float | None = Field(
        default=None, ge=0, description="mask sequences of negative advantage that drifted by more nats per token"
    )
    kl_coef: float = Field(default=0.0, ge=0, description="k3 penalty towards the policy that the night starts from")
    entropy_coef: float = Field(default=0.0, ge=0, description="bonus for the policy's entropy at the trained tokens")
    normalise: Literal["token", "sequence", "constant"] = Field(
        default="token",
        description="mean over a step's tokens, over its rows' means, or sum over rows * normaliser (Dr. GRPO)",
    )
    normaliser: int | None = Field(default=None, ge=1, description="tokens per row that `constant` divides by")

    @field_validator("objective")
    @classmethod
    def _is_known(cls, value: str) -> str:
        if value not in OBJECTIVES and ":" not in value and not entry_points(group="clawpipe.losses", name=value):
            raise ValueError(f"no objective {value!r}: use {', '.join(OBJECTIVES)}, or path/to/file.py:NAME")
        return value

    @model_validator(mode="after")
    def _has_one_correction(self) -> Loss:
        if self.icepop and self.tis_cap is not None:
            raise ValueError("`icepop` masks by the weight that `tis_cap` would truncate, and goes before it: set one of them")
        if self.icepop and not 0 <= self.icepop[0] < self.icepop[1]:
            low, high = self.icepop
            raise ValueError(f"no weight is inside of `icepop` [{low:g}, {high:g}]: write the lower bound first, e.g. [0.5, 2.0]")
        return self

    @model_validator(mode="after")
    def _has_a_normaliser_for_constant(self) -> Loss:
        if (self.normalise == "constant") != (self.normaliser is not None):
            raise ValueError("`normaliser` belongs to `normalise: constant`: set both or neither")
        return self


ONE_OF = (("optimizer_steps", "batch_rows", "batch_tokens"), ("warmup_steps", "warmup_ratio"))  # of these one is set


class RunSettings(Block):
    """The settings that every method reads."""

    backend: BackendSpec = BackendSpec()
    method: MethodName = Field(default="grpo", description="how the policy learns; a page each in docs/methods")
    start_from: Literal["base", "champion"] = Field(default="base", description="policy that the first round starts from")
    learning_rate: float | None = Field(default=None, gt=0, description="null: by the base's width, the adapter and the method")
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = Field(
        default="constant",
        description="schedule after the warm-up; linear and cosine fall to 0 at the night's end",
    )
    warmup_steps: int = Field(
        default=0, ge=0, description="optimizer steps w of the night before the full rate; it rises by 1/(w+1) a step"
    )
    warmup_ratio: float = Field(default=0.0, ge=0, lt=1, description="warm-up as a share of the night's optimizer steps")
    adam_beta1: float = Field(default=0.9, ge=0, lt=1, description="AdamW's decay of the mean gradient")
    adam_beta2: float = Field(default=0.999, ge=0, lt=1, description="AdamW's decay of the mean squared gradient")
    weight_decay: float = Field(default=0.0, ge=0, description="AdamW's decay of all trained weights except biases and norms")
    optimizer_steps: int | None = renamed(
        "updates",
        "optimizer_steps",
        default=None,
        ge=1,
        description=f"optimizer steps per epoch; null: see batch_rows and batch_tokens, else {_STEPS}",
    )
    batch_rows: int | None = Field(
        default=None, ge=1, description="rows per optimizer step, or pairs for dpo; approximate, since groups stay whole"
    )
    batch_tokens: int | None = Field(
        default=None, ge=1, description="trained tokens per optimizer step; approximate, since groups stay whole"
    )
    epochs: int = Field(default=1, ge=1, description="passes over a round's rows")
    max_steps: int | None = Field(default=None, ge=1, description="most optimizer steps per round, over all epochs")
    max_grad_norm: float = Field(default=1.0, gt=0, description="norm to which the gradient of a step is clipped")
    max_kl: float | None = Field(default=None, gt=0, description="stop when approx_kl to the behaviour policy exceeds this")
    validation: float = Field(default=0.0, ge=0, le=0.5, description="share of the groups kept out for early stopping")
    patience: int = Field(default=2, ge=1, description="optimizer steps without a better validation loss before stopping")
    pack_tokens: int = Field(default=1024, ge=64, description="tokens per packed sequence, shared prefixes counted once")
    share_prefixes: bool = Field(default=True, description="false: prefixes are computed for every row")
    gradient_checkpointing: bool = Field(default=False, description="recompute activations: half the memory, a fifth more time")
    checkpoint_seconds: float = Field(
        default=120.0, gt=0, description="seconds between checkpoints, written after an optimizer step"
    )
    checkpoint_steps: int | None = Field(default=None, ge=1, description="also write a checkpoint after so many optimizer steps")
    probe_steps: int | None = Field(
        default=None,
        ge=1,
        description="optimizer steps after which the policy is tried on train items that no round takes, as a curve; null: never",
    )
    adapter: Literal["lora", "full"] = Field(default="lora", description="trained weights: an adapter, or all")
    lora: Lora = Lora()
    loss: Loss = Loss()

    @model_validator(mode="after")
    def _sets_each_thing_once(self) -> Self:
        for names in ONE_OF:
            if len(given := [name for name in names if getattr(self, name)]) > 1:
                raise ValueError(
                    f"{' and '.join(f'`{name}`' for name in given)} set the same thing: set one of them, and null for the rest"
                )
        return self


class Train(MethodSettings, RunSettings):
    """The method, what every method reads, and a block for each method with settings of its own."""

    @model_validator(mode="after")
    def _has_an_effect(self) -> Train:
        for name, why in self.spec.idle.items():
            block, field = (self.loss if "." in name else self), name.rpartition(".")[2]
            if getattr(block, field) != type(block).model_fields[field].default:
                raise ValueError(f"`{name}` has no effect: {why}; leave it out, or train with another method")
        if self.spec.weights is None and not (self.combine.w_rl or self.combine.w_opd):
            raise ValueError("both weights of `combine` are 0: there is nothing to learn; give w_rl or w_opd a value")
        return self

    @property
    def spec(self) -> Method:
        """The method's entry in `METHODS`."""
        return METHODS[self.method]

    def result_fields(self) -> frozenset[str]:
        """All fields except where the first policy came from, which is a separate input, how often checkpoints are saved, and the
        blocks of other methods."""
        other = frozenset(MethodSettings.model_fields) - self.spec.blocks
        at_default = {"probe_steps"} if self.probe_steps is None else set[str]()  # in no key, so that keys of trainings before stay
        at_default |= {"backend"} if self.backend == BackendSpec() else set[str]()
        return super().result_fields() - other - at_default - {"start_from", "checkpoint_seconds", "checkpoint_steps"}

    def steps_for(self, rows: int, tokens: int) -> int:
        """Return the optimizer steps per epoch over `rows` rows (dpo: pairs) with `tokens` trained tokens."""
        if self.batch_rows:
            return math.ceil(rows / self.batch_rows)
        return math.ceil(tokens / self.batch_tokens) if self.batch_tokens else self.optimizer_steps or _STEPS
