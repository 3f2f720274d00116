"""The training methods: one object each, which says what the method asks of data, token scores, loss and trainer.

    sft      likelihood of the tokens of positive advantage
    grpo     the policy loss as configured, on the advantages of the samples
    ppo      the same on advantages of a critic, plus the critic's own loss
    opd      the hinted teacher's opinion, as an advantage a token or as a divergence over K + 1 bins
    combine  w_rl times the terms of grpo plus w_opd times those of opd
    dpo      preference pairs; its loss is in clawpipe.training.losses.preference

opd is combine with the weights (0, 1), grpo is combine with (1, 0): there is one path for all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

MethodName = Literal["sft", "grpo", "ppo", "dpo", "opd", "combine"]
Text = Literal["none", "scored", "all"]

_CORRECTIONS = ("loss.tis_cap", "loss.icepop", "loss.opsm_delta")


@dataclass(frozen=True)
class Method:
    """A training method.

    Attributes:
        learning_rate: vetted for adapters.
        pairs: it learns from preference pairs; else from samples, one row a conversation.
        uses_ratios: its loss compares with the policy that sampled, so recorded log-probs count.
        compares: it learns from the differences within a group of rollouts of one item.
        critic: advantages come from a value head that is trained beside the policy; else curation computes them.
        judged: the verifier's verdict decides about rows, not an advantage.
        text: which conversations without recorded tokens it can learn from.
        likelihood: its policy loss is plain likelihood, whatever `train.loss.objective` says.
        weights: (w_rl, w_opd), factors of the reward's terms and of the hinted teacher's; None: those of `train.combine`.
        blocks: of `train`, the methods' own settings that it reads.
        idle: settings that have no effect under it, and why.
    """

    name: MethodName
    learning_rate: float = 3e-4
    pairs: bool = False
    uses_ratios: bool = True
    compares: bool = False
    critic: bool = False
    judged: bool = False
    text: Text = "none"
    likelihood: bool = False
    weights: tuple[float, float] | None = (1.0, 0.0)
    blocks: frozenset[str] = frozenset()
    idle: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def families(self) -> frozenset[str]:
        """Names by which curation's SQL files say whom they are for."""
        policy = not self.judged and not self.critic
        member = {self.name: True, "policy": policy, "ratio": self.uses_ratios, "outcome": self.judged}
        return frozenset(name for name, belongs in member.items() if belongs)

    @property
    def dataset(self) -> str:
        """What curation makes for it."""
        return "preference_pairs" if self.pairs else "samples"


_ALL = (
    Method(
        "sft",
        uses_ratios=False,
        judged=True,
        text="all",
        likelihood=True,
        idle=dict.fromkeys((*_CORRECTIONS, "max_kl"), "sft takes no importance ratio"),
    ),
    Method("grpo", compares=True),
    Method("ppo", critic=True, blocks=frozenset({"ppo"})),
    Method(
        "dpo",
        learning_rate=2e-4,
        pairs=True,
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
    Method("opd", text="scored", weights=(0.0, 1.0), blocks=frozenset({"opd"})),
    Method("combine", text="scored", weights=None, blocks=frozenset({"opd", "combine"})),
)
METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _ALL})
OWN_BLOCKS = frozenset().union(*(method.blocks for method in _ALL))
assert tuple(METHODS) == get_args(MethodName)
