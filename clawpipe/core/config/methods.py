"""The training methods, one object per method: its requirements on data, token scores, loss and trainer.

    sft      likelihood of the tokens of positive advantage
    grpo     the policy loss as configured, on the advantages of the samples
    ppo      the same on advantages of a critic, plus the critic's own loss
    opd      the hinted teacher's log-probs, as an advantage per token or as a divergence over K + 1 bins
    combine  w_rl times the terms of grpo plus w_opd times those of opd
    kto      trajectories labelled desirable or undesirable, one by one; its loss is in clawpipe.learn.training.losses.kto
    dpo      preference pairs; its loss is in clawpipe.learn.training.losses.preference

opd is combine with the weights (0, 1), grpo is combine with (1, 0): there is one path for all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from clawpipe.core.config.block import Block, Fraction

MethodName = Literal["sft", "grpo", "ppo", "dpo", "kto", "opd", "combine"]
Text = Literal["none", "scored", "all"]


class Ppo(Block):
    """The critic of `ppo`: a value head on the policy, trained with it."""

    gamma: float = Field(default=1.0, gt=0, le=1, description="discount per step: per trained token or per turn, see `steps`")
    gae_lambda: float = Field(default=0.95, ge=0, le=1, description="lambda of generalised advantage estimation")
    value_clip: float | None = Field(default=0.2, gt=0, description="how far a value may move from its first estimate; null: any")
    value_coef: float = Field(default=0.1, ge=0, description="weight of the value loss")
    steps: Literal["token", "turn"] = Field(
        default="token", description="what gamma and lambda count as one step; turn: all tokens of a turn have one advantage"
    )

    def result_fields(self) -> frozenset[str]:
        return super().result_fields() - ({"steps"} if self.steps == "token" else set())  # keys of trainings before stay


class Opd(Block):
    """On-policy distillation from a teacher that sees a hint."""

    teacher: str = Field(default="start", description="start (the round's policy), base, champion, or a base model's name")
    form: Literal["token", "topk"] = Field(
        default="topk", description="advantage of the sampled token, or reverse KL over K + 1 bins"
    )
    clip: float = Field(default=5.0, gt=0, description="limit of |log p_teacher - log p_behaviour| per token, for form `token`")
    top_k: int = Field(default=16, ge=1, description="tokens that form `topk` compares one by one; the rest is one bin")
    top_k_of: Literal["student", "teacher"] = Field(default="student", description="model whose likeliest tokens are compared")
    hint: Literal["text", "demonstration"] = Field(
        default="text", description="a note after the last user message, or the right turns shown as an earlier dialogue"
    )
    repeats: int = Field(default=3, ge=1, description="how often a demonstration is shown")
    candidates: int = Field(default=3, ge=1, description="hints tried per row; the one whose teacher agrees most is used")
    hint_per: Literal["row", "token"] = Field(
        default="row", description="whether one of the hints teaches all tokens of a row, or of its turn, or each token has its own"
    )
    min_gain: Fraction = Field(default=0.1, description="least gain in success of the hinted teacher over the student, else no OPD")
    probe_items: Literal[0] | Annotated[int, Field(ge=8)] = Field(
        default=32, description="task items on which the gain is measured; 0: not measured, for hints that no environment can try"
    )

    def result_fields(self) -> frozenset[str]:
        return super().result_fields() - ({"hint_per"} if self.hint_per == "row" else set())  # keys of trainings before stay


class Combine(Block):
    w_rl: float = Field(default=1.0, ge=0, description="weight of the rewards' part")
    w_opd: float = Field(default=1.0, ge=0, description="weight of the teacher's part")


class Dpo(Block):
    beta: float = Field(default=0.1, gt=0, description="larger: the policy stays closer to the reference")
    variant: Literal["sigmoid", "ipo", "sigmoid_norm"] = Field(default="sigmoid", description="sigmoid_norm: length-normalised")
    nll_coef: float = Field(
        default=1.0, ge=0, description="weight of the chosen side's likelihood; 0: pure DPO, which over-optimizes"
    )
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=0.5, description="probability that a pair's label is wrong: conservative DPO; not for ipo"
    )

    @model_validator(mode="after")
    def _smooths_no_ipo_labels(self) -> Dpo:
        if self.label_smoothing and self.variant == "ipo":
            raise ValueError("ipo has no labels to smooth: set `label_smoothing` to 0, or `variant` to sigmoid")
        return self


class Kto(Block):
    """The loss on labelled trajectories; formula in clawpipe.learn.training.losses.kto."""

    beta: float = Field(default=0.1, gt=0, description="how fast the value of a log-ratio saturates; larger: stay closer")
    desirable_weight: float | None = Field(
        default=None,
        ge=0,
        description="weight of a desirable trajectory, lambda_D; null: both labels weigh the same, in a round and in each question",
    )
    undesirable_weight: float = Field(default=1.0, ge=0, description="weight of an undesirable trajectory, lambda_U")

    @model_validator(mode="after")
    def _weighs_a_label(self) -> Kto:
        if not (self.desirable_weight or self.undesirable_weight):
            raise ValueError("both weights are 0: there is nothing to learn; give desirable_weight or undesirable_weight a value")
        return self


class MethodSettings(Block):
    """The methods' own settings, a block each; a step's key holds those that its method reads, see `Method.blocks`."""

    ppo: Ppo = Ppo()
    opd: Opd = Opd()
    combine: Combine = Combine()
    dpo: Dpo = Dpo()
    kto: Kto = Kto()


_CORRECTIONS = ("loss.tis_cap", "loss.icepop", "loss.opsm_delta")


@dataclass(frozen=True)
class Method:
    """A training method.

    Attributes:
        learning_rate: of an adapter of alpha 32 on SmolLM2-135M; for others see clawpipe.core.config.rates.
        trainer: module of clawpipe.learn.training.trainers that trains it.
        pairs: whether it learns from preference pairs; else from samples, one row per conversation.
        uses_ratios: whether its loss has importance ratios, which need recorded log-probs.
        compares: whether it learns from the differences within a group of rollouts of one item.
        critic: whether advantages come from a value head that is trained with the policy; else curation computes them.
        judged: whether rows are chosen by success, and not weighted by advantages.
        text: the conversations without recorded tokens from which it can learn: none, scored ones, or all.
        likelihood: whether its policy loss is plain likelihood, whatever `train.loss.objective` says.
        compares_with_start: whether its loss needs log-probs of the reference, the policy that the night started from; else only
            `loss.kl_coef` does.
        copies: the kind of rows of other groups that a row is compared with: copies of a "draw", equal "conversation"s, or answers
            to the same "prompt", of which pairs that contradict each other are removed.
        weights: (w_rl, w_opd), factors of the reward's terms and of the hinted teacher's; None: those of `train.combine`.
        blocks: names of the blocks of `train` that it reads.
        idle: settings that have no effect under it, and why.
    """

    name: MethodName
    learning_rate: float = 3e-4
    trainer: str = "policy"
    pairs: bool = False
    uses_ratios: bool = True
    compares: bool = False
    critic: bool = False
    judged: bool = False
    text: Text = "none"
    likelihood: bool = False
    compares_with_start: bool = False
    copies: Literal["draw", "conversation", "prompt"] = "draw"
    weights: tuple[float, float] | None = (1.0, 0.0)
    blocks: frozenset[str] = frozenset()
    idle: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def families(self) -> frozenset[str]:
        """The family names of curation's SQL files that apply to this method."""
        policy = not self.judged and not self.critic
        member = {self.name: True, "policy": policy, "ratio": self.uses_ratios, "outcome": self.judged, "pairs": self.pairs}
        return frozenset(name for name, belongs in member.items() if belongs)

    @property
    def learns_from_scores(self) -> bool:
        """Whether the scores of rows matter to it, beside a teacher's hints or without."""
        return self.weights is None or self.weights[0] > 0

    @property
    def labels(self) -> bool:
        """Whether it learns from rows that are good or bad, one by one, beside the policy that the night started from."""
        return self.judged and self.compares_with_start and not self.pairs

    @property
    def stays_near(self) -> str:
        """What holds the policy nearer to the night's start, as advice."""
        return f"double train.{self.name}.beta" if self.compares_with_start else "set train.loss.kl_coef (0.05)"

    @property
    def stays_open(self) -> str:
        """What keeps the policy's entropy up, as advice."""
        return self.stays_near if "loss.entropy_coef" in self.idle else "set train.loss.entropy_coef (0.01)"

    @property
    def dataset(self) -> str:
        """The dataset that curation makes for this method."""
        return "preference_pairs" if self.pairs else "samples"


_ALL = (
    Method(
        "sft",
        uses_ratios=False,
        judged=True,
        text="all",
        likelihood=True,
        copies="conversation",
        idle=dict.fromkeys((*_CORRECTIONS, "max_kl"), "sft takes no importance ratio"),
    ),
    Method("grpo", compares=True),
    Method("ppo", critic=True, blocks=frozenset({"ppo"})),
    Method(
        "dpo",
        learning_rate=2e-4,
        trainer="preference",
        pairs=True,
        compares_with_start=True,
        copies="prompt",
        uses_ratios=False,
        judged=True,
        text="all",
        blocks=frozenset({"dpo"}),
        idle={
            **dict.fromkeys((*_CORRECTIONS, "max_kl"), "dpo takes no importance ratio of a policy that sampled"),
            "loss.kl_coef": "dpo's loss has its divergence from the reference in `dpo.beta`",
            "loss.entropy_coef": "dpo's loss has no entropy bonus",
        },
    ),
    Method(
        "kto",
        learning_rate=2e-4,
        trainer="kto",
        uses_ratios=False,
        judged=True,
        text="all",
        compares_with_start=True,
        blocks=frozenset({"kto"}),
        idle={
            **dict.fromkeys((*_CORRECTIONS, "max_kl"), "kto takes no importance ratio of a policy that sampled"),
            "loss.kl_coef": "kto's loss has its divergence from the reference in `kto.beta`",
            "loss.entropy_coef": "kto's loss has no entropy bonus",
        },
    ),
    Method("opd", text="scored", weights=(0.0, 1.0), blocks=frozenset({"opd"})),
    Method("combine", text="scored", weights=None, blocks=frozenset({"opd", "combine"})),
)
METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _ALL})
assert tuple(METHODS) == get_args(MethodName)
