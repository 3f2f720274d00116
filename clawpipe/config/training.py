"""Settings of a training run: the method, its loss, its adapter. Formulas are in clawpipe.training."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from clawpipe.config.block import Block, Fraction, renamed
from clawpipe.config.methods import METHODS, OWN_BLOCKS, Method, MethodName

_STEPS = 4  # an epoch, where nothing says otherwise


class Lora(Block):
    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: Fraction = 0.0
    target_modules: str | tuple[str, ...] = "all-linear"
    variant: Literal["lora", "rslora", "dora"] = Field(default="lora", description="rslora scales by alpha / sqrt(rank)")


class Loss(Block):
    """Policy loss on recorded tokens; formulas in clawpipe.training.losses.policy."""

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
    kl_coef: float = Field(default=0.0, ge=0, description="k3 penalty towards the base policy")
    entropy_coef: float = Field(default=0.0, ge=0, description="bonus for the policy's entropy at the trained tokens")
    normalise: Literal["token", "sequence", "constant"] = Field(
        default="token",
        description="mean of an update's tokens, of its rows' means, or over rows * normaliser (Dr. GRPO)",
    )
    normaliser: int | None = Field(default=None, ge=1, description="tokens a row that `constant` divides by")

    @model_validator(mode="after")
    def _corrects_once(self) -> Loss:
        if self.icepop and self.tis_cap is not None:
            raise ValueError("`icepop` masks by the weight that `tis_cap` would truncate, and goes before it: set one of them")
        if self.icepop and not 0 <= self.icepop[0] < self.icepop[1]:
            low, high = self.icepop
            raise ValueError(f"no weight is inside of `icepop` [{low:g}, {high:g}]: write the lower bound first, e.g. [0.5, 2.0]")
        return self

    @model_validator(mode="after")
    def _has_its_constant(self) -> Loss:
        if (self.normalise == "constant") != (self.normaliser is not None):
            raise ValueError("`normaliser` belongs to `normalise: constant`: set both or neither")
        return self


class Ppo(Block):
    """The critic of `ppo`: a value head on the policy, trained beside it."""

    gamma: float = Field(default=1.0, gt=0, le=1, description="discount a trained token")
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    value_clip: float | None = Field(default=0.2, gt=0)
    value_coef: float = Field(default=0.1, ge=0, description="weight of the value loss")


class Opd(Block):
    """On-policy distillation from a teacher that saw the hint."""

    teacher: str = Field(default="start", description="start (the round's policy), base, champion, or a base model's name")
    form: Literal["token", "topk"] = Field(
        default="topk", description="advantage of the sampled token, or reverse KL over K + 1 bins"
    )
    clip: float = Field(default=5.0, gt=0, description="limit of |log p_teacher - log p_behaviour| a token, `token` form")
    top_k: int = Field(default=16, ge=1, description="tokens that the `topk` form compares one by one; the rest is one bin")
    top_k_of: Literal["student", "teacher"] = Field(default="student", description="whose likeliest tokens those are")
    hint: Literal["text", "demonstration"] = Field(
        default="text", description="a note after the last user message, or the right turns shown as an earlier dialogue"
    )
    repeats: int = Field(default=3, ge=1, description="how often a demonstration is shown")
    candidates: int = Field(default=3, ge=1, description="hints of a row that are tried; the one whose teacher agrees most counts")
    min_gain: Fraction = Field(default=0.1, description="by how much the hinted teacher must clearly beat the student, else no OPD")
    probe_items: Literal[0] | Annotated[int, Field(ge=8)] = Field(
        default=32, description="task items on which that is measured; 0: it is not, for hints that no environment can try"
    )


class Combine(Block):
    w_rl: float = Field(default=1.0, ge=0)
    w_opd: float = Field(default=1.0, ge=0)


class Dpo(Block):
    beta: float = Field(default=0.1, gt=0)
    variant: Literal["sigmoid", "ipo", "sigmoid_norm"] = Field(default="sigmoid", description="sigmoid_norm: length-normalised")
    nll_coef: float = Field(default=1.0, ge=0, description="likelihood of the chosen side; 0 is pure DPO, which over-optimises")
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=0.5, description="probability that a pair's label is wrong: conservative DPO; not for ipo"
    )

    @model_validator(mode="after")
    def _has_labels_to_smooth(self) -> Dpo:
        if self.label_smoothing and self.variant == "ipo":
            raise ValueError("ipo has no labels to smooth: set `label_smoothing` to 0, or `variant` to sigmoid")
        return self


class Train(Block):
    method: MethodName = "grpo"
    start_from: Literal["base", "champion"] = Field(default="base", description="what the first round's policy is")
    learning_rate: float | None = Field(default=None, gt=0, description="null: the method's vetted default")
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = Field(
        default="constant",
        description="the rate after the warm-up; linear and cosine fall to 0 at the round's end",
    )
    warmup_steps: int = Field(default=0, ge=0, description="optimizer steps over which the rate rises from 0, in each round")
    warmup_ratio: float = Field(default=0.0, ge=0, lt=1, description="the same as a share of the round's optimizer steps")
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0, description="AdamW's, on all trained weights but biases and norms")
    optimizer_steps: int | None = renamed(
        "updates",
        "optimizer_steps",
        default=None,
        ge=1,
        description=f"optimizer steps an epoch; null: see batch_rows and batch_tokens, else {_STEPS}",
    )
    batch_rows: int | None = Field(
        default=None, ge=1, description="rows an optimizer step, for dpo pairs; about, for groups stay whole"
    )
    batch_tokens: int | None = Field(
        default=None, ge=1, description="trained tokens an optimizer step; about, for groups stay whole"
    )
    epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1, description="most optimizer steps a round, all epochs together")
    max_grad_norm: float = Field(default=1.0, gt=0)
    max_kl: float | None = Field(default=None, gt=0, description="stop once approx_kl to the behaviour policy exceeds it")
    validation: float = Field(default=0.0, ge=0, le=0.5, description="share of the groups kept out to stop early on")
    patience: int = Field(default=2, ge=1, description="optimizer steps without a better validation loss before stopping")
    pack_tokens: int = Field(default=1024, ge=64, description="tokens a packed sequence, shared prefixes counted once")
    share_prefixes: bool = Field(default=True, description="false: every row is computed whole")
    gradient_checkpointing: bool = Field(default=False, description="recompute activations: half the memory, a fifth more time")
    checkpoint_seconds: float = Field(default=120.0, gt=0, description="after the first optimizer step that ends so much later")
    checkpoint_steps: int | None = Field(default=None, ge=1, description="and one after each so many optimizer steps")
    adapter: Literal["lora", "full"] = Field(default="lora", description="what is trained: an adapter, or every weight")
    lora: Lora = Lora()
    loss: Loss = Loss()
    ppo: Ppo = Ppo()
    opd: Opd = Opd()
    combine: Combine = Combine()
    dpo: Dpo = Dpo()

    @model_validator(mode="after")
    def _says_it_once(self) -> Train:
        for names in (("optimizer_steps", "batch_rows", "batch_tokens"), ("warmup_steps", "warmup_ratio")):
            if len(given := [name for name in names if getattr(self, name)]) > 1:
                raise ValueError(f"{' and '.join(f'`{name}`' for name in given)} say the same thing twice: set one of them")
        return self

    @model_validator(mode="after")
    def _has_an_effect(self) -> Train:
        for name, why in self.kind.idle.items():
            block, field = (self.loss if "." in name else self), name.rpartition(".")[2]
            if getattr(block, field) != type(block).model_fields[field].default:
                raise ValueError(f"`{name}` has no effect: {why}; leave it out, or train with another method")
        if self.kind.weights is None and not (self.combine.w_rl or self.combine.w_opd):
            raise ValueError("both weights of `combine` are 0: there is nothing to learn; give w_rl or w_opd a value")
        return self

    @property
    def kind(self) -> Method:
        """What the method asks for."""
        return METHODS[self.method]

    def result_fields(self) -> frozenset[str]:
        """Neither where the first policy came from, which is an input of its own, nor how often state is saved; and of the methods'
        blocks those that this method reads."""
        other = OWN_BLOCKS - self.kind.blocks
        return super().result_fields() - other - {"start_from", "checkpoint_seconds", "checkpoint_steps"}

    @property
    def rate(self) -> float:
        """The learning rate that applies."""
        return self.learning_rate or self.kind.learning_rate

    def steps_for(self, rows: int, tokens: int) -> int:
        """Optimizer steps an epoch over `rows` rows (dpo: pairs) that hold `tokens` trained tokens."""
        if self.batch_rows:
            return math.ceil(rows / self.batch_rows)
        return math.ceil(tokens / self.batch_tokens) if self.batch_tokens else self.optimizer_steps or _STEPS
