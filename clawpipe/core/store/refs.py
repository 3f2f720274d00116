"""References to artifacts. Tasks pass references, never data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import ToolCallFormat


class _Ref(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    digest: str = Field(description="sha256 of the artifact's manifest, hence of its content")
    parents: tuple[str, ...] = Field(default=(), description="digests of what this was made from; not part of the content")


class DatasetRef(_Ref):
    """A reference to an immutable directory of Parquet files."""

    kind: Literal["dataset"] = "dataset"
    rows: int
    schema_version: str = "1"


class ModelRef(_Ref):
    """A reference to an immutable directory of adapter files or whole weights, or to the base (then `digest` is the base's)."""

    model_config = ConfigDict(serialize_by_alias=True)

    kind: Literal["model"] = "model"
    base: str = Field(description="digest of the base weights")
    base_name: str = Field(description="name that resolves to them")
    tool_call_format: ToolCallFormat = Field(
        validation_alias=AliasChoices("tool_call_format", "calls"),
        serialization_alias="calls",  # its name in records, manifests and packages
        description="format in which this policy writes tool calls",
    )
    dtype: str = Field(description="precision it runs in")
    policy_version: str = Field(description="digest of base + adapter + renderer, see clawpipe.model.policy.version")
    adapter: bool = Field(default=True, description="the artifact is an adapter beside the base")
    weights: bool = Field(default=False, description="the artifact is a whole model, tokenizer included, that came of the base")
    quantization: str = Field(default="none", description="how the base, or the whole weights, are held when it is loaded")
    elsewhere: str | None = Field(default=None, description="name of the base at the service that holds its weights; null: here")
    remote: str | None = Field(default=None, description="where a service keeps the adapter for sampling; a place, and no content")

    @property
    def stored(self) -> bool:
        """Whether there is an artifact in the store; the base has none."""
        return self.adapter or self.weights


class OptimizerRef(_Ref):
    """A reference to an optimizer's state between two rounds of a night; it fits one policy of that night and no other."""

    kind: Literal["optimizer"] = "optimizer"
    night: str = Field(description="the night's training, see clawpipe.learn.training.course")
    policy_version: str = Field(description="the policy to whose weights the moments belong")


Ref = Annotated[DatasetRef | ModelRef | OptimizerRef, Field(discriminator="kind")]
AnyRef = DatasetRef | ModelRef | OptimizerRef


class StepResult(BaseModel):
    """The result of a step: its output, and counts that add up: rows_in = rows_out + sum(filtered) if rows are carried over."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    output: Ref | None = None
    extras: dict[str, Ref] = Field(default_factory=dict, description="further artifacts by role, e.g. the quarantine")
    rows_in: int = 0
    rows_out: int = 0
    filtered: dict[str, int] = Field(
        default_factory=dict,
        validation_alias=AliasChoices("filtered", "set_aside"),  # its name in records of 0.2 and before
        description="rows by the reason for which they were left out",
    )
    details: JsonObject = Field(default_factory=dict, description="small JSON values: metrics, verdict, version")

    @property
    def dataset(self) -> DatasetRef:
        """The output, which must be a dataset."""
        assert isinstance(self.output, DatasetRef)
        return self.output

    @property
    def model(self) -> ModelRef:
        """The output, which must be a model."""
        assert isinstance(self.output, ModelRef)
        return self.output

    def extra(self, role: str) -> DatasetRef:
        """Return a further dataset of the step."""
        ref = self.extras[role]
        assert isinstance(ref, DatasetRef)
        return ref

    def refs(self) -> list[AnyRef]:
        """Return the refs of all artifacts of this result."""
        return [ref for ref in (self.output, *self.extras.values()) if ref is not None]
