"""The settings of a night, block by block, before it is checked that they go together (see clawpipe.core.config.contradictions)."""

from __future__ import annotations

from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.block import Block, Fraction, renamed
from clawpipe.core.config.curation import Curation
from clawpipe.core.config.environment import CONVERSATIONS, Drawn, EnvironmentConfig, WeightedEnvironment
from clawpipe.core.config.gate import Gate, Measure
from clawpipe.core.config.generation import Rollouts
from clawpipe.core.config.metrics import Metrics
from clawpipe.core.config.model import Model
from clawpipe.core.config.notify import Notify
from clawpipe.core.config.quantization import Quantization
from clawpipe.core.config.registry import Registry
from clawpipe.core.config.runtime import Runtime
from clawpipe.core.config.scorers import VERIFIER, JudgeSpec, ScorerSpec
from clawpipe.core.config.several import drawn_from
from clawpipe.core.config.training import Train

_NO_RESULT = frozenset({"timezone", "tracking", "notify", "metrics", "runtime"})  # blocks and settings that can change no result
_NAMED = (
    "digests or their beginnings; or of what was ingested all, latest, new, which no night with a verdict has used, "
    "or a query, e.g. source = captured and since last night"
)


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # of a name that is none, or that is a directory of zones
        raise ValueError(f"{name!r} is no time zone: write one of the IANA's, e.g. Europe/Berlin") from None
    return name


Timezone = Annotated[str, AfterValidator(_known_zone)]


class Evaluation(Block):
    temperature: float = Field(default=0.0, ge=0, description="0 is greedy")
    confidence: float = Field(
        default=0.95, gt=0, lt=1, description="confidence level of the report's intervals; it does not affect the verdict"
    )
    heldout_share: float = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="share of users, sessions or prompts of stored data that is held out, in the environment conversations",
    )

    replay_calls: bool = Field(
        default=False,
        description="whether the models make tool calls of held-out conversations anew, which the verdict then counts",
    )

    judge: JudgeSpec | None = Field(
        default=None,
        description="judge that compares the models' answers to held-out conversations, which is then the verdict's measure",
    )

    def result_fields(self) -> frozenset[str]:
        defaults = {"heldout_share": 0.1, "replay_calls": False, "judge": None}  # in no key, so that keys of nights before stay
        return super().result_fields() - {name for name, value in defaults.items() if getattr(self, name) == value}


class Serving(Block):
    """Settings of the registered version. The held-out evaluation runs on exactly this artifact."""

    artifact: Literal["adapter", "merged"] = renamed(
        "artefact", "artifact", default="adapter", description="adapter beside its base, or merged into it"
    )
    quantization: Quantization = Field(default="none", description="quantization of the merged weights, applied after merging")
    max_divergence: Fraction = Field(
        default=0.05,
        description="greatest KL(trained || served) / KL(trained || base) on held-out contexts; above it the gate holds",
    )


class Tracking(Block):
    wandb: str | None = Field(default=None, description="W&B project that gets the night's metrics besides MLflow; null: none")
    otel: bool = Field(
        default=False, description="whether each run of the night is an OpenTelemetry trace, sent where the OTEL_* variables say"
    )
    checkpoints: bool = Field(default=False, description="whether each round's adapter is kept as an artifact of the MLflow run")

    def result_fields(self) -> frozenset[str]:
        return frozenset()


class NightFields(Block):
    """The settings of one night, each valid by itself."""

    night: str = Field(
        default="{date}",
        description="label of the night, with {date} for the day it is due; equal labels and settings are one night",
    )
    timezone: Timezone = Field(
        default="UTC", description="time zone whose date {date} is in a night started by hand; a schedule has its own"
    )
    draw: str | None = Field(
        default=None,
        description="label that seeds draws of items and random numbers, so that nights compare; null: the night's label",
    )
    seed: int = Field(default=0, description="seed of items, rollouts and the order of training; the label is part of it")
    rounds: int = Field(
        default=3, ge=1, le=10_000, description="number of rounds; each generates with the policy that the round before trained"
    )
    candidate: Literal["best", "last"] = Field(
        default="best",
        description="round whose policy is the candidate: best, by its rollouts of training items, or last, which saves the "
        "rollouts that measure the last round's policy",
    )
    model: Model = Model()
    environment: EnvironmentConfig = EnvironmentConfig()
    environments: tuple[WeightedEnvironment, ...] = Field(
        default=(), description="several environments in place of environment.name, each with a weight; environment has the counts"
    )
    rollouts: Rollouts | None = Field(
        default=Rollouts(), description="settings of the night's own rollouts; null: train on stored trajectories only"
    )
    trajectories: tuple[str, ...] = Field(default=(), description=f"stored trajectory datasets, also trained on: {_NAMED}")
    scores: tuple[str, ...] = Field(default=(), description=f"stored score datasets for imported trajectories: {_NAMED}")
    preferences: tuple[str, ...] = Field(default=(), description=f"stored preference_pairs datasets, for dpo: {_NAMED}")
    scorers: tuple[ScorerSpec, ...] = Field(
        default=(), description="scorers besides the environment's verifier; judges among them score stored rows too"
    )
    curation: Curation = Curation()
    train: Train = Train()
    evaluation: Evaluation = Evaluation()
    gate: Gate = Gate()
    registry: Registry = Registry()
    serving: Serving = Serving()
    tracking: Tracking = Tracking()
    notify: Notify = Notify()
    metrics: Metrics = Metrics()
    runtime: Runtime = Runtime()

    def result_fields(self) -> frozenset[str]:
        at_default = {name for name in ("scorers", "environments") if not getattr(self, name)}  # in no night's name: names stay
        at_default |= {"candidate"} if self.candidate == "best" else set()
        return super().result_fields() - _NO_RESULT - {"night"} - at_default

    @property
    def drawn(self) -> Drawn:
        """The environments of the night, one or several, and the numbers of their items."""
        return drawn_from(self.environment, self.environments)

    @property
    def judged(self) -> bool:
        """Whether somebody besides the verifier scores what is trained on."""
        return any(scorer.name != VERIFIER for scorer in self.scorers)

    @property
    def gate_rules(self) -> Gate:
        """The gate's settings, where it is decided whether signs hold a promotion back."""
        decided = self.gate.hold_on_signs
        return self.gate.model_copy(update={"hold_on_signs": self.judged if decided is None else decided})

    @property
    def measure(self) -> Measure:
        """The measure of the verdict: success at tasks, or a measure on held-out conversations or preference pairs."""
        if self.environments or self.environment.name != CONVERSATIONS:
            return "success"
        if self.preferences and self.train.spec.pairs:
            return "preference accuracy"
        if self.evaluation.judge:
            return "judged"
        return "tool calls" if self.evaluation.replay_calls else "likelihood"

    def settings(self) -> JsonObject:
        """Return all settings that can change results, as JSON."""
        return self.model_dump(mode="json", exclude=set(_NO_RESULT))
