"""Settings of a night. A step's key holds the block that the step takes, as far as its fields can change the result.

Whatever does not change results (devices, workers, time limits) lives in `Runtime`, which is in no key.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from clawpipe.config.block import Block, Fraction, Name, renamed
from clawpipe.config.curation import Curation as Curation
from clawpipe.config.curation import Pairs as Pairs
from clawpipe.config.quantization import Quantization, device_obstacle, serving_obstacle, training_obstacle
from clawpipe.config.training import Train

FLOAT16 = "float16 is not trained in: it has no number below 6e-8, where gradients are, nor above 65504"


class Model(Block):
    base: str = Field(default="smollm2-135m-instruct", description="built-in name, hub id or local directory of the base model")
    tool_call_format: Literal["pythonic", "hermes"] = renamed(
        "calls", "tool_call_format", default="pythonic", description="how the model writes a tool call"
    )
    dtype: Literal["float32", "bfloat16"] = Field(default="float32", description="of the weights and of the arithmetic")
    quantization: Quantization = Field(default="none", description="how the frozen base is held while it generates and trains")

    @field_validator("dtype", mode="before")
    @classmethod
    def _can_be_trained_in(cls, value: Any) -> Any:
        if value == "float16":
            raise ValueError(f"{FLOAT16}; bfloat16 takes as much memory")
        return value


class Extension(Block):
    """Something that is found by name, see clawpipe.extensions, and called with `options`. The name alone can be written for it."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict, description="arguments, by name, of what the name stands for")

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class EnvironmentSpec(Extension):
    """Which environment, without how many items of it."""

    name: str = Field(default="shop", description="built-in name, or path/to/file.py:ClassName")
    options: dict[str, Any] = Field(default_factory=dict, description="handed to the environment's constructor")


class EngineSpec(Extension):
    """Which engine samples tokens."""

    name: str = Field(default="embedded", description="embedded (transformers, in this process), or path/to/file.py:ClassName")
    options: dict[str, Any] = Field(default_factory=dict, description="handed to the engine's constructor")


class EnvironmentConfig(EnvironmentSpec):
    train_items: int = Field(default=128, ge=1, description="task items that rounds draw from")
    heldout_items: int = Field(
        default=160,
        ge=1,
        description="items that a verdict rests on: never trained on, new every night as far as there are new ones",
    )
    benchmark_items: int = Field(
        default=64, ge=0, description="held-out items that are the same every night: they show the trend and decide nothing"
    )
    seed: int = Field(default=0, description="with the night's label it decides which items a night draws")


class Generation(Block):
    """How an item is rolled out."""

    group_size: int = Field(default=8, ge=1, description="rollouts an item")
    temperature: float = Field(default=0.8, ge=0)
    max_new_tokens: int = Field(default=24, ge=1, description="limit a turn")
    max_turns: int = Field(default=4, ge=1, description="assistant turns an episode")
    shard_rollouts: int = Field(default=64, ge=1, description="rollouts a shard file, generated as one batch")
    engine: EngineSpec = EngineSpec()

    def once(self, temperature: float) -> Generation:
        """A single rollout an item, at this temperature."""
        return self.model_copy(update={"group_size": 1, "temperature": temperature})


class Rollouts(Generation):
    items: int = Field(default=32, ge=1, description="task items a round")
    temperature: float = Field(default=0.8, gt=0)
    chunks: int = Field(default=16, ge=1, le=64, description="tasks a round is cut into, whatever the number of rollouts")


class Evaluation(Block):
    temperature: float = Field(default=0.0, ge=0, description="0 is greedy")
    confidence: float = Field(default=0.95, gt=0, lt=1, description="level of the intervals in the report; it decides nothing")


class Gate(Block):
    alpha: float = Field(
        default=0.05,
        gt=0,
        lt=1,
        description="chance of any false promotion in `nights` nights; and, night by night, of a false rejection",
    )
    nights: int = Field(default=30, ge=1, description="nights in a row that alpha is for: a night promotes at alpha / nights")
    min_effect: float = Field(default=0.02, ge=0, le=1, description="smallest gain in success worth a promotion")
    min_items: int = Field(
        default=50, ge=1, description="independent held-out items, one an identity, without which nothing is decided"
    )
    slice_margin: Fraction = Field(default=0.1, description="how much worse a slice may be before it counts as a regression")

    @property
    def level(self) -> float:
        """Of one night's test of better."""
        return self.alpha / self.nights


class Registry(Block):
    model_name: Name = "clawpipe-agent"


class Serving(Block):
    """What a registered version consists of; the held-out evaluation runs on exactly this."""

    artifact: Literal["adapter", "merged"] = renamed(
        "artefact", "artifact", default="adapter", description="adapter beside its base, or merged into it"
    )
    quantization: Quantization = Field(default="none", description="of the merged weights, quantised after merging")
    max_divergence: Fraction = Field(
        default=0.05, description="KL(trained || served) over KL(trained || base) on held-out contexts above which the gate holds"
    )


class Tracking(Block):
    wandb: str | None = Field(default=None, description="W&B project that the night's metrics go to as well; null: MLflow alone")
    checkpoints: bool = Field(default=False, description="keep each round's adapter as an artefact of the MLflow run")

    def result_fields(self) -> frozenset[str]:
        return frozenset()


class Runtime(Block):
    """Settings that change how fast or where, never what: in no step's key."""

    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:N")
    workers: int = Field(default=0, ge=0, description="generation processes; 0 chooses by cores or GPUs")
    train_threads: int = Field(default=0, ge=0, description="CPU threads of the trainer; 0 uses every core")
    train_processes: int = Field(default=1, ge=1, description="training processes, started with torchrun where more than one")
    accelerate: str | None = Field(default=None, description="accelerate config for them, e.g. configs/accelerate/fsdp2.yaml")
    curation_memory: str = Field(
        default="512MB",
        pattern=r"^[1-9][0-9]*(MB|GB)$",
        description="most that curation's tables may take before they go to disk; the process takes half a gigabyte more",
    )
    step_timeout: float = Field(default=7200.0, gt=0, description="seconds a subprocess may take")

    def result_fields(self) -> frozenset[str]:
        return frozenset()


class NightConfig(Block):
    """One night: from task items, or from stored data, to a verdict."""

    night: str = Field(default="{date}", description="label; the same label and settings are the same night. {date} is today")
    draw: str | None = Field(
        default=None, description="label by which items and seeds are drawn, for nights to be compared; null: the night's own"
    )
    seed: int = 0
    rounds: int = Field(default=3, ge=1, description="each round generates under the policy that the last one trained")
    model: Model = Model()
    environment: EnvironmentConfig = EnvironmentConfig()
    rollouts: Rollouts | None = Field(default=Rollouts(), description="null: train on stored trajectories only")
    trajectories: tuple[str, ...] = Field(default=(), description="digests of stored trajectory datasets to train on as well")
    scores: tuple[str, ...] = Field(default=(), description="digests of stored scores datasets, which judge what was imported")
    preferences: tuple[str, ...] = Field(default=(), description="digests of stored preference_pairs datasets, for dpo")
    curation: Curation = Curation()
    train: Train = Train()
    evaluation: Evaluation = Evaluation()
    gate: Gate = Gate()
    registry: Registry = Registry()
    serving: Serving = Serving()
    tracking: Tracking = Tracking()
    runtime: Runtime = Runtime()

    def result_fields(self) -> frozenset[str]:
        return super().result_fields() - {"night", "tracking", "runtime"}

    def settings(self) -> dict[str, Any]:
        """All that can change results, as JSON."""
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
    def _has_something_to_compare(self) -> NightConfig:
        alone = self.rollouts is not None and self.rollouts.group_size == 1
        if alone and self.train.kind.compares and self.curation.credit == "group" and not self.trajectories:
            raise ValueError(
                "rollouts.group_size is 1: grpo compares the rollouts of an item with each other, and learns nothing from one "
                "alone; set it to 2 or more, curation.credit to turn, or train.method to ppo"
            )
        return self

    @model_validator(mode="after")
    def _can_be_quantised(self) -> NightConfig:
        held, served, device = self.model.quantization, self.serving.quantization, self.runtime.device
        obstacle = (
            training_obstacle(held, self.train.adapter, self.train.lora.variant)
            or serving_obstacle(self.serving.artifact, served, self.model.dtype)
            or device_obstacle("model.quantization", held, device)
            or device_obstacle("serving.quantization", served, device)
        )
        if obstacle:
            raise ValueError(obstacle)
        return self

    @model_validator(mode="after")
    def _can_go_on_from_the_champion(self) -> NightConfig:
        if (self.train.start_from, self.serving.artifact, self.train.adapter) == ("champion", "merged", "lora"):
            raise ValueError(
                "an adapter cannot go on from a merged champion: set serving.artifact to adapter, train.adapter to full, "
                "or train.start_from to base"
            )
        return self
