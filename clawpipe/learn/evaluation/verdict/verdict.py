"""Inputs and outputs of the gate: immutable values that convert to JSON and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.config.gate import Measure


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ItemOutcome(_Frozen):
    """Outcome of one model on one held-out item."""

    success: bool | None = Field(description="None: the evaluation of this item ended in an error")
    value: float | None = Field(default=None, description="what models are compared by, where that is not the success")
    slice: str
    identity: str = Field(default="", description="items with the same identity count as one observation; empty: the item alone")


class ModelOutcomes(_Frozen):
    """One model's evaluation: item id to outcome."""

    policy_version: str
    items: dict[str, ItemOutcome]

    @property
    def errors(self) -> int:
        return sum(outcome.success is None for outcome in self.items.values())


class Fidelity(_Frozen):
    """Changes by serving and by training: mean KL divergences in nats per token on held-out contexts."""

    trained: str = Field(description="policy version that was trained")
    served: str = Field(description="policy version that is evaluated and would be served")
    divergence: float = Field(ge=0, description="KL(trained || served)")
    learnt: float = Field(ge=0, description="KL(trained || base)")
    positions: int = Field(description="number of tokens that the means are over")


class Freshness(_Frozen):
    """How often earlier nights have looked at the identities that a night's verdict rests on."""

    identities: int
    fresh: int = Field(description="identities that no night has looked at")
    looks: float = Field(default=0.0, description="mean number of nights that have looked at the other identities; 0 without any")

    @classmethod
    def of(cls, identities: Iterable[str], seen: Mapping[str, int]) -> Freshness:
        """Return how often the identities have been looked at, from the number of looks at each."""
        counts = [seen.get(identity, 0) for identity in sorted(set(identities))]
        reused = [count for count in counts if count]
        mean = sum(reused) / len(reused) if reused else 0.0
        return cls(identities=len(counts), fresh=len(counts) - len(reused), looks=round(mean, 3))

    @classmethod
    def together(cls, parts: Sequence[Freshness]) -> Freshness:
        """Return the same of the identities of several environments."""
        identities, fresh = sum(part.identities for part in parts), sum(part.fresh for part in parts)
        looks = sum(part.looks * (part.identities - part.fresh) for part in parts)
        return cls(identities=identities, fresh=fresh, looks=round(looks / max(identities - fresh, 1), 3))


class Tally(_Frozen):
    """How a night's candidate did on the held-out identities that no night had looked at before."""

    wins: int = Field(ge=0, description="identities on which the candidate did better than the incumbent")
    losses: int = Field(ge=0)
    identities: int = Field(ge=0, description="all of them")

    def __add__(self, other: Tally) -> Tally:
        mine, theirs = self.model_dump(), other.model_dump()
        return Tally(**{name: mine[name] + theirs[name] for name in mine})


class MeanReward(_Frozen):
    """What the rollouts of a round were rewarded with."""

    n: int = Field(ge=1)
    mean: float
    variance: float = Field(ge=0, description="population variance")


class Training(_Frozen):
    """What a night's training looked like: it changes no test, but a night can be told to hold on it."""

    signs: tuple[str, ...] = Field(default=(), description="what looked wrong where rows were scored, in sentences")
    rewards: tuple[MeanReward, ...] = Field(default=(), description="round by round")
    reply_tokens: dict[str, float] = Field(default_factory=dict, description="mean sampled tokens of a held-out item, by role")


class Evidence(_Frozen):
    """Everything that the verdict is based on."""

    base: ModelOutcomes
    candidate: ModelOutcomes
    champion: ModelOutcomes | None = Field(default=None, description="None: no model is in service yet")
    measure: Measure = "success"
    served: str = Field(description="policy version of the artifact that a promotion would put in service")
    fidelity: Fidelity | None = Field(default=None, description="None: the trained policy is served as it is")
    max_divergence: float = Field(default=0.0, ge=0, description="largest share of what was learnt that serving may change")
    confidence: float = Field(default=0.95, gt=0, lt=1, description="level of the verdict's intervals; no decision depends on it")
    freshness: Freshness | None = Field(default=None, description="None: looks were not counted")
    training: Training = Training()
    earlier: tuple[Tally, ...] = Field(default=(), description="of this model's nights since its last promotion")
    seen: frozenset[str] = Field(default=frozenset(), description="identities that earlier nights have looked at")

    @property
    def incumbent(self) -> ModelOutcomes:
        """The model to beat: the champion, or the base if there is none."""
        return self.champion or self.base

    @property
    def incumbent_role(self) -> str:
        return "champion" if self.champion else "base"

    def models(self) -> Iterator[tuple[str, ModelOutcomes]]:
        """Yield role and outcomes of every evaluated model."""
        yield "base", self.base
        if self.champion:
            yield "champion", self.champion
        yield "candidate", self.candidate


class Decision(StrEnum):
    PROMOTE = "PROMOTE"
    HOLD = "HOLD"
    REJECT = "REJECT"


class ModelSummary(_Frozen):
    """Success over the items that ended without an error; None if there is no such item. The interval counts identities.

    Where the measure is likelihood, success is the share of conversations that are likelier than under the base; where it is
    judged, the share of answers preferred to the rival's. The incumbent's rival is the candidate, everybody else's the incumbent.
    """

    policy_version: str
    success: float | None
    low: float | None
    high: float | None
    n: int
    errors: int
    log_prob: float | None = Field(default=None, description="mean over conversations of a reply token's log-prob, in nats")


class Comparison(_Frozen):
    """Candidate against incumbent on the same items."""

    n: int
    identities: int = Field(description="independent observations among the n items")
    wins: int = Field(description="items that only the candidate solves")
    losses: int = Field(description="items that only the incumbent solves")
    effect: float = Field(description="(wins - losses) / n, the change of the success rate")
    p_better: float = Field(description="one-sided exact paired test over identities; see statistics.sign_flip")
    p_worse: float


class SliceComparison(Comparison):
    slice: str
    p_regression: float = Field(description="p-value of a loss within the margin; see statistics.beyond_margin")


class Verdict(_Frozen):
    """The decision, its reasons, and the evidence behind it."""

    decision: Decision
    reasons: tuple[str, ...] = Field(description="complete sentences")
    measure: Measure = "success"
    incumbent: str = Field(description="champion or base")
    models: dict[str, ModelSummary] = Field(description="by role")
    comparison: Comparison | None = Field(description="None: the evaluations cannot be paired")
    slices: tuple[SliceComparison, ...] = ()
    freshness: Freshness | None = Field(default=None, description="None: looks were not counted")
    fidelity: Fidelity | None = Field(default=None, description="None: the trained policy is served as it is")
    warnings: tuple[str, ...] = Field(default=(), description="signs that a reward is gamed, in sentences")
    tally: Tally | None = Field(default=None, description="the night's own part of evidence that adds up; None: it does not")
