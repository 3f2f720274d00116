"""Small values that name artefacts. Tasks pass these, never data."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Ref(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    digest: str = Field(description="sha256 of the artefact's manifest, hence of its content")
    parents: tuple[str, ...] = Field(default=(), description="digests of what this was made from; not part of the content")


class DatasetRef(_Ref):
    """An immutable directory of Parquet files."""

    kind: Literal["dataset"] = "dataset"
    rows: int
    schema_version: str = "1"


class ModelRef(_Ref):
    """An immutable directory of adapter files or of whole weights, or the untouched base (then `digest` is the base's)."""

    kind: Literal["model"] = "model"
    base: str = Field(description="digest of the base weights")
    base_name: str = Field(description="name that resolves to them")
    calls: Literal["pythonic", "hermes"] = Field(description="how this policy writes a tool call")
    dtype: str = Field(description="precision it runs in")
    policy_version: str = Field(description="digest of base + adapter + renderer, see clawpipe.policy.version")
    adapter: bool = Field(default=True, description="the artefact is an adapter beside the base")
    weights: bool = Field(default=False, description="the artefact is a whole model, tokenizer included, that came of the base")
    quantization: str = Field(default="none", description="how the base, or the whole weights, are held when it is loaded")

    @property
    def stored(self) -> bool:
        """Whether there is an artefact at all; the untouched base has none."""
        return self.adapter or self.weights


Ref = Annotated[DatasetRef | ModelRef, Field(discriminator="kind")]
AnyRef = DatasetRef | ModelRef


class StepResult(BaseModel):
    """What every step returns: its output, and rows that add up: where rows are carried over, in = out + set aside."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    output: Ref | None = None
    extras: dict[str, Ref] = Field(default_factory=dict, description="further artefacts by role, e.g. the quarantine")
    rows_in: int = 0
    rows_out: int = 0
    set_aside: dict[str, int] = Field(default_factory=dict, description="reason to count")
    details: dict[str, Any] = Field(default_factory=dict, description="small JSON facts: metrics, verdict, version")

    @property
    def dataset(self) -> DatasetRef:
        """The output of a step that makes a dataset."""
        assert isinstance(self.output, DatasetRef)
        return self.output

    @property
    def model(self) -> ModelRef:
        """The output of a step that makes a model."""
        assert isinstance(self.output, ModelRef)
        return self.output

    def extra(self, role: str) -> DatasetRef:
        """A further dataset that the step made."""
        ref = self.extras[role]
        assert isinstance(ref, DatasetRef)
        return ref

    def refs(self) -> list[AnyRef]:
        """Every artefact this result names."""
        return [ref for ref in (self.output, *self.extras.values()) if ref is not None]
