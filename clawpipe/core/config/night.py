"""Settings of a night. A step's key holds the block of settings that the step takes, restricted to fields that change results.

Settings that change no result (devices, workers, time limits) are in `Runtime`, which is in no key. A block that steps take has a
module of its own, so that a step's key does not hold the others; all of them can be imported from here.
"""

from __future__ import annotations

from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, model_validator

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.block import Block, Fraction, renamed
from clawpipe.core.config.curation import Curation as Curation
from clawpipe.core.config.curation import Pairs as Pairs
from clawpipe.core.config.engine import SERVERS
from clawpipe.core.config.engine import EngineSpec as EngineSpec
from clawpipe.core.config.environment import CONVERSATIONS as CONVERSATIONS
from clawpipe.core.config.environment import Drawn as Drawn
from clawpipe.core.config.environment import EnvironmentConfig as EnvironmentConfig
from clawpipe.core.config.environment import EnvironmentSpec as EnvironmentSpec
from clawpipe.core.config.environment import Played as Played
from clawpipe.core.config.environment import WeightedEnvironment as WeightedEnvironment
from clawpipe.core.config.gate import Gate as Gate
from clawpipe.core.config.gate import Measure as Measure
from clawpipe.core.config.generation import Generation as Generation
from clawpipe.core.config.generation import Rollouts as Rollouts
from clawpipe.core.config.metrics import Metrics as Metrics
from clawpipe.core.config.model import Model as Model
from clawpipe.core.config.notify import Notify as Notify
from clawpipe.core.config.quantization import Quantization, device_obstacle, serving_obstacle, training_obstacle
from clawpipe.core.config.registry import Registry
from clawpipe.core.config.runtime import Runtime as Runtime
from clawpipe.core.config.scorers import VERIFIER
from clawpipe.core.config.scorers import JudgeSpec as JudgeSpec
from clawpipe.core.config.scorers import ScorerSpec as ScorerSpec
from clawpipe.core.config.several import drawn_from, obstacle_of
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


class NightConfig(Block):
    """One night: from task items, or from stored data, to a verdict."""

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
        default=3, ge=1, description="number of rounds; each generates with the policy that the round before trained"
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

    @model_validator(mode="after")
    def _has_a_source(self) -> NightConfig:
        if self.rollouts is None and not self.trajectories and not self.preferences:
            raise ValueError("nothing to learn from: set `rollouts`, or name stored datasets in `trajectories`")
        if self.rollouts and self.rollouts.items > self.environment.train_items:
            raise ValueError(
                f"rollouts.items ({self.rollouts.items}) exceeds environment.train_items ({self.environment.train_items})"
            )
        return self

    @model_validator(mode="after")
    def _has_words_of_users(self) -> NightConfig:
        if self.registry.per and not self.trajectories and not self.preferences:
            raise ValueError("registry.per user learns from what each user said: name `trajectories`, such as [all]")
        return self

    @model_validator(mode="after")
    def _has_items_to_probe(self) -> NightConfig:
        if self.train.probe_steps is None:
            return self
        if self.rollouts is None or self.rollouts.engine.is_endpoint:
            raise ValueError(
                "train.probe_steps has no effect: a night that does not sample itself has no tasks to try its policy on"
            )
        needed = (self.rounds + 1) * self.rollouts.items
        if needed > self.environment.train_items:
            raise ValueError(
                f"train.probe_steps needs train items that no round takes: set environment.train_items to {needed} or more, "
                "or take fewer rounds or rollouts.items"
            )
        return self

    @model_validator(mode="after")
    def _shares_its_items(self) -> NightConfig:
        if why := obstacle_of(self.environment, self.environments, self.rollouts.items if self.rollouts else 0):
            raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _has_conversations(self) -> NightConfig:
        if self.measure != "success" and self.rollouts is not None:
            raise ValueError(
                f"the environment {CONVERSATIONS} has no tasks to roll out: set `rollouts` to null, or name another environment"
            )
        if self.evaluation.judge and self.measure != "judged":
            raise ValueError(
                f"evaluation.judge has no effect here: the verdict is about {self.measure}; it compares answers in the environment "
                f"{CONVERSATIONS}, where stored trajectories are trained on"
            )
        if self.measure in ("tool calls", "judged", "likelihood") and not self.trajectories:
            raise ValueError(f"{self.train.method} learns from `trajectories`, and none are named to hold conversations out from")
        return self

    @model_validator(mode="after")
    def _has_something_to_compare(self) -> NightConfig:
        alone = self.rollouts is not None and self.rollouts.group_size == 1
        if alone and not self.trajectories and self._learns_from_differences_alone():
            raise ValueError(
                f"rollouts.group_size is 1: {self.train.method} compares the rollouts of an item with each other, and learns "
                "nothing from one alone; set it to 2 or more, train.method to ppo, or with grpo and combine curation.credit to turn"
            )
        return self

    def _learns_from_differences_alone(self) -> bool:
        """Whether all that the night's rollouts can teach are differences within a group."""
        method, curation = self.train.spec, self.curation
        if method.pairs:
            return not (self.preferences or curation.pairs.corrections or curation.demonstrations.share)
        if method.likelihood:
            return curation.imitate == "chosen"
        unhinted = method.weights is None and not self.train.combine.w_opd  # combine is then grpo
        return (method.compares or unhinted) and curation.credit != "turn"

    @model_validator(mode="after")
    def _weighs_turns_that_count(self) -> NightConfig:
        if self.curation.step_weight and (why := self.curation.unweighed_by(self.train.spec, self.train.combine.w_rl)):
            raise ValueError(f"`curation.step_weight` has no effect: {why}; leave it out, or train with another method")
        return self

    @model_validator(mode="after")
    def _compresses_no_ratios(self) -> NightConfig:
        if self.curation.compress and self.train.spec.uses_ratios:
            raise ValueError(
                f"curation.compress is not for {self.train.method}, which takes ratios of recorded tokens: nobody sampled a "
                "shortened trajectory; leave it out, or set train.method to sft, dpo or kto"
            )
        pairs = self.curation.pairs
        if self.curation.compress and self.train.spec.pairs and (pairs.corrections or pairs.strategy == "same-prefix"):
            raise ValueError(
                "curation.compress cuts what such pairs of turns are compared in: leave it out, or set curation.pairs.corrections "
                "to false and curation.pairs.strategy to another one than same-prefix"
            )
        return self

    @model_validator(mode="after")
    def _has_items_to_demonstrate(self) -> NightConfig:
        if self.curation.demonstrations.share and self.rollouts is None:
            raise ValueError(
                "curation.demonstrations shows the items that the night's rollouts did not solve, and `rollouts` is null: set its "
                "share to 0, or set `rollouts`"
            )
        return self

    @model_validator(mode="after")
    def _has_rollouts_to_replay(self) -> NightConfig:
        if self.curation.sampling.replay_nights and (self.rollouts is None or not self.train.spec.learns_from_scores):
            why = (
                "`rollouts` is null" if self.rollouts is None else f"{self.train.method} learns from hints to tonight's items alone"
            )
            raise ValueError(f"curation.sampling.replay_nights replays rollouts of earlier nights, and {why}: set it to 0")
        return self

    @model_validator(mode="after")
    def _can_be_quantized(self) -> NightConfig:
        quantization, served, device = self.model.quantization, self.serving.quantization, self.runtime.device
        obstacle = (
            training_obstacle(quantization, self.train.adapter, self.train.lora.variant)
            or serving_obstacle(self.serving.artifact, served, self.model.dtype)
            or device_obstacle("model.quantization", quantization, device)
            or device_obstacle("serving.quantization", served, device)
        )
        if obstacle:
            raise ValueError(obstacle)
        return self

    @model_validator(mode="after")
    def _can_be_sampled(self) -> NightConfig:
        if self.rollouts is None:
            return self
        engine, serving = self.rollouts.engine, self.serving
        if engine.text_only and self.train.spec.text != "all":
            raise ValueError(
                f"{self.train.method} takes ratios with the policy that sampled, and rollouts.engine {engine.name} gives "
                "text only: set train.method to sft, dpo or kto, rollouts.engine to vllm, sglang or embedded, or "
                "rollouts.engine.tokens to true where the endpoint gives token ids and log-probs"
            )
        whole = self.train.adapter == "full" or serving.artifact == "merged" or self.model.quantization != "none"
        if engine.is_policy_server and whole:
            raise ValueError(
                f"rollouts.engine {engine.name} is given adapters of one base: set train.adapter to lora, serving.artifact to "
                "adapter and model.quantization to none"
            )
        return self

    @model_validator(mode="after")
    def _trains_adapters_that_its_engine_reads(self) -> NightConfig:
        server = SERVERS.get(self.rollouts.engine.name) if self.rollouts else None
        if self.rollouts and server and self.train.adapter == "lora" and self.train.lora.variant not in server.variants:
            raise ValueError(
                f"rollouts.engine {self.rollouts.engine.name} reads no adapters of the variant {self.train.lora.variant}: set "
                f"train.lora.variant to {' or '.join(server.variants)}, or sample with another engine"
            )
        return self

    @model_validator(mode="after")
    def _is_sampled_at_one_temperature(self) -> NightConfig:
        if self.rollouts and self.rollouts.engine.is_service and self.rollouts.temperature != 1:
            raise ValueError(
                f"rollouts.engine {self.rollouts.engine.name} has log-probs at temperature 1 alone: set rollouts.temperature to 1"
            )
        return self

    @model_validator(mode="after")
    def _samples_where_it_trains(self) -> NightConfig:
        engine, backend = self.rollouts.engine if self.rollouts else EngineSpec(), self.train.backend
        if engine.is_service and (engine.name, engine.model) != (backend.name, backend.model):
            raise ValueError(
                f"rollouts.engine {engine.name} samples what was trained there, from {engine.model}: set train.backend to "
                f"{{name: {engine.name}, model: {engine.model}}}, or sample with another engine"
            )
        if self.model.elsewhere and (not engine.is_service or engine.model != self.model.elsewhere):
            raise ValueError(
                f"model.elsewhere says that the base's weights are at a service, as {self.model.elsewhere}: set rollouts.engine "
                f"and train.backend to {{name: tinker, model: {self.model.elsewhere}}}, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _can_go_on_from_the_champion(self) -> NightConfig:
        if (self.train.start_from, self.serving.artifact, self.train.adapter) == ("champion", "merged", "lora"):
            raise ValueError(
                "an adapter cannot start from a merged champion: set serving.artifact to adapter, train.adapter to full, "
                "or train.start_from to base"
            )
        return self
