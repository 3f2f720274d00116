"""Settings of a night. A step's key holds the block of settings that the step takes, restricted to fields that change results.

Settings that change no result (devices, workers, time limits) are in `Runtime`, which is in no key.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from clawpipe.config.block import Block, Extension, Fraction, Name, renamed
from clawpipe.config.curation import Curation as Curation
from clawpipe.config.curation import Pairs as Pairs
from clawpipe.config.engine import EngineSpec as EngineSpec
from clawpipe.config.quantization import Quantization, device_obstacle, serving_obstacle, training_obstacle
from clawpipe.config.training import Train
from clawpipe.json_types import JsonObject, Options
from clawpipe.messages import ToolCallFormat

CONVERSATIONS = "conversations"  # the environment of nights whose verdict rests on held-out conversations
Measure = Literal["success", "preference accuracy", "tool calls", "judged", "likelihood"]
_NAMED = (
    "digests or their beginnings; or of what was ingested all, latest, new, which no night with a verdict has used, "
    "or a query, e.g. source = captured and since last night"
)
FLOAT16 = "float16 is not trained in: it has no number below 6e-8, where gradients are, nor above 65504"


class Model(Block):
    base: str = Field(default="smollm2-135m-instruct", description="built-in name, hub id or local directory of the base model")
    tool_call_format: ToolCallFormat = renamed(
        "calls", "tool_call_format", default="pythonic", description="how the model writes a tool call"
    )
    dtype: Literal["float32", "bfloat16"] = Field(default="float32", description="dtype of the weights and of the arithmetic")
    quantization: Quantization = Field(default="none", description="quantization of the frozen base in generation and training")

    @field_validator("dtype", mode="before")
    @classmethod
    def _can_be_trained_in(cls, value: Any) -> Any:
        if value == "float16":
            raise ValueError(f"{FLOAT16}; bfloat16 takes as much memory")
        return value


class EnvironmentSpec(Extension):
    """An environment, without the number of items drawn from it."""

    name: str = Field(default="shop", description="built-in name, or path/to/file.py:ClassName")
    options: Options = Field(default_factory=dict, description="arguments of the environment's constructor")


class JudgeSpec(Extension):
    """A scorer."""

    name: str = Field(description="path/to/file.py:NAME, or the name of one in an installed package")
    options: Options = Field(default_factory=dict, description="handed to the scorer's constructor")


class ScorerSpec(JudgeSpec):
    """A scorer besides the environment's verifier."""

    weight: float = Field(default=0.0, description="of its score in the reward, beside the verifier's with 1; 0: stored beside it")


class EnvironmentConfig(EnvironmentSpec):
    train_items: int = Field(default=128, ge=1, description="task items that rounds draw from")
    heldout_items: int = Field(
        default=160,
        ge=1,
        description="items for the verdict: never trained on, and new every night while there are new ones",
    )
    benchmark_items: int = Field(
        default=64,
        ge=0,
        description="held-out items that are the same every night: they show the trend and do not affect the verdict",
    )
    seed: int = Field(default=0, description="decides, with the night's label, which items are drawn")


class Generation(Block):
    """How an item is rolled out."""

    group_size: int = Field(default=8, ge=1, description="rollouts per item")
    temperature: float = Field(default=0.8, ge=0, description="of sampling; 0 is greedy")
    max_new_tokens: int = Field(default=24, ge=1, description="limit per turn")
    max_turns: int = Field(default=4, ge=1, description="assistant turns per episode")
    shard_rollouts: int = Field(default=64, ge=1, description="rollouts per shard file, generated as one batch")
    waves: int = Field(
        default=1, ge=1, le=16, description="parts of a shard: while one generates, slow tools answer the others, in threads"
    )
    engine: EngineSpec = EngineSpec()

    def result_fields(self) -> frozenset[str]:
        at_default = {"engine"} if self.engine == EngineSpec() else set[str]()
        return super().result_fields() - at_default - ({"waves"} if self.waves == 1 else set())

    def once(self, temperature: float) -> Generation:
        """Return settings for a single rollout per item, at this temperature."""
        return self.model_copy(update={"group_size": 1, "temperature": temperature})


class Rollouts(Generation):
    items: int = Field(default=32, ge=1, description="task items per round")
    temperature: float = Field(default=0.8, gt=0, description="of sampling")
    chunks: int = Field(default=16, ge=1, le=64, description="tasks per round, for any number of rollouts")


class Evaluation(Block):
    temperature: float = Field(default=0.0, ge=0, description="0 is greedy")
    confidence: float = Field(
        default=0.95, gt=0, lt=1, description="level of the intervals in the report; it does not affect the verdict"
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


class Gate(Block):
    alpha: float = Field(
        default=0.05,
        gt=0,
        lt=1,
        description="chance of any false promotion in `nights` nights, and of a false rejection in one night",
    )
    nights: int = Field(default=30, ge=1, description="number of nights that alpha covers: a night promotes at alpha / nights")
    min_effect: float = Field(default=0.02, ge=0, le=1, description="smallest gain in success worth a promotion")
    min_items: int = Field(default=50, ge=1, description="independent held-out items (identities) below which the gate holds")
    slice_margin: Fraction = Field(default=0.1, description="success rate that a slice may lose without counting as a regression")
    promote_on_likelihood: bool = Field(
        default=False, description="whether held-out conversations that become likelier are enough for a promotion"
    )

    hold_on_signs: bool = Field(
        default=False, description="whether signs that the reward is gamed hold a promotion back; else they are warnings"
    )

    @property
    def level(self) -> float:
        """Significance level of one night's test for promotion."""
        return self.alpha / self.nights

    def result_fields(self) -> frozenset[str]:
        later = {"promote_on_likelihood", "hold_on_signs"}  # in no key while they are off, so that keys of nights before them stay
        return super().result_fields() - {name for name in later if not getattr(self, name)}


class Registry(Block):
    model_name: Name = Field(default="clawpipe-agent", description="registered model that the night is for")


class Serving(Block):
    """What a registered version consists of; the held-out evaluation runs on exactly this."""

    artifact: Literal["adapter", "merged"] = renamed(
        "artefact", "artifact", default="adapter", description="adapter beside its base, or merged into it"
    )
    quantization: Quantization = Field(default="none", description="quantization of the merged weights, applied after merging")
    max_divergence: Fraction = Field(
        default=0.05,
        description="KL(trained || served) / KL(trained || base) on held-out contexts above which the gate holds",
    )


class Tracking(Block):
    wandb: str | None = Field(default=None, description="W&B project that also gets the night's metrics; null: only MLflow")
    checkpoints: bool = Field(default=False, description="keep each round's adapter as an artifact of the MLflow run")

    def result_fields(self) -> frozenset[str]:
        return frozenset()


class Runtime(Block):
    """Settings that change how fast or where a night runs, but no result: in no step's key."""

    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:N")
    workers: int = Field(default=0, ge=0, description="number of generation processes; 0 chooses by cores or GPUs")
    train_threads: int = Field(default=0, ge=0, description="CPU threads of the trainer; 0 uses every core")
    train_processes: int = Field(default=1, ge=1, description="number of training processes; several are started with torchrun")
    accelerate: str | None = Field(default=None, description="accelerate config for them, e.g. configs/accelerate/fsdp2.yaml")
    curation_memory: str = Field(
        default="512MB",
        pattern=r"^[1-9][0-9]*(MB|GB)$",
        description="memory of curation's tables before they spill to disk; the process takes half a gigabyte more",
    )
    step_timeout: float = Field(default=7200.0, gt=0, description="seconds a subprocess may take")

    def result_fields(self) -> frozenset[str]:
        return frozenset()


class NightConfig(Block):
    """One night: from task items, or from stored data, to a verdict."""

    night: str = Field(default="{date}", description="label; the same label and settings are the same night. {date} is today")
    draw: str | None = Field(
        default=None,
        description="label that seeds draws of items and random numbers, so that nights compare; null: the night's label",
    )
    seed: int = Field(default=0, description="decides, with the label, all that is drawn: items, rollouts, order of training")
    rounds: int = Field(default=3, ge=1, description="each round generates with the policy that the last one trained")
    model: Model = Model()
    environment: EnvironmentConfig = EnvironmentConfig()
    rollouts: Rollouts | None = Field(default=Rollouts(), description="null: train on stored trajectories only")
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
    runtime: Runtime = Runtime()

    def result_fields(self) -> frozenset[str]:
        return super().result_fields() - {"night", "tracking", "runtime"} - ({"scorers"} if not self.scorers else set())

    @property
    def measure(self) -> Measure:
        """What the verdict is about: tasks done, or what the models say of held-out conversations or preference pairs."""
        if self.environment.name != CONVERSATIONS:
            return "success"
        if self.preferences and self.train.kind.pairs:
            return "preference accuracy"
        if self.evaluation.judge:
            return "judged"
        return "tool calls" if self.evaluation.replay_calls else "likelihood"

    def settings(self) -> JsonObject:
        """Return all settings that can change results, as JSON."""
        return self.model_dump(mode="json", exclude={"tracking", "runtime"})

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
    def _has_conversations(self) -> NightConfig:
        if self.environment.name == CONVERSATIONS and self.rollouts is not None:
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
        if alone and self.train.kind.compares and self.curation.credit == "group" and not self.trajectories:
            raise ValueError(
                "rollouts.group_size is 1: grpo compares the rollouts of an item with each other, and learns nothing from one "
                "alone; set it to 2 or more, curation.credit to turn, or train.method to ppo"
            )
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
        if engine.text_only and self.train.kind.text != "all":
            raise ValueError(
                f"{self.train.method} takes ratios with the policy that sampled, and rollouts.engine {engine.name} gives "
                "text only: set train.method to sft, dpo or kto, rollouts.engine to vllm or embedded, or rollouts.engine.tokens "
                "to true where the endpoint gives token ids and log-probs"
            )
        whole = self.train.adapter == "full" or serving.artifact == "merged" or self.model.quantization != "none"
        if engine.apart and whole:
            raise ValueError(
                f"rollouts.engine {engine.name} is given adapters of one base: set train.adapter to lora, serving.artifact to "
                "adapter and model.quantization to none"
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
