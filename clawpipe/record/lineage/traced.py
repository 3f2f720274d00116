"""What a trace of a model version tells: its trainings, datasets, task items, and the lines that they came from."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject


class Dataset(BaseModel):
    """A dataset on the way to the model."""

    model_config = ConfigDict(frozen=True)

    name: str
    digest: str
    rows: int | None


class Training(BaseModel):
    """One training on the way to the model: one round of a night."""

    night: str
    step: str
    adapter: str = Field(description="digest of what it made")
    samples: Dataset
    trajectories: dict[str, list[str]] | None = Field(description="item id to the trajectories handed to the trainer; None: lost")


class Item(BaseModel):
    """A task item; `question` is its last message."""

    item_id: str
    environment: str
    identity: str
    question: str


class Source(BaseModel):
    """The source of an imported trajectory, as far as it is known; rollouts have none."""

    format: str | None
    file: str | None
    line: int | None
    session: str | None
    user: str | None


class Reviewed(BaseModel):
    """What a person decided about a trajectory before it taught."""

    verdict: str = Field(description="approved; written: a person wrote its answer")
    by: str
    at: str = Field(description="in UTC")


class Trace(BaseModel):
    """The origin of a model. `lost` names datasets that the store no longer holds whole; their ids cannot be listed or counted."""

    adapter: str
    choice: str | None = Field(description="why its night chose the round that trained it; None: the night had no choice")
    base: Dataset | None = Field(description="the untrained model")
    trainings: list[Training] = Field(description="the last one first")
    datasets: list[Dataset] = Field(description="everything that was read on the way, task items first")
    items: dict[str, Item] = Field(description="by item id; those that trained the model")
    sources: dict[str, Source] = Field(description="by trajectory id; those that were imported or captured")
    reviews: dict[str, Reviewed] = Field(description="by trajectory id; those that a person approved or wrote")
    compressed: dict[str, JsonObject] = Field(
        default_factory=dict,
        description="by trajectory id, of those that were shortened: tokens before and after, and what was cut",
    )
    lost: list[Dataset]
    counts: dict[str, int] = Field(
        description="trainings, samples, trajectories, items; and shortened trajectories, if there are any"
    )


class TracedModel(BaseModel):
    """A version of a registered model."""

    name: str
    version: str
    aliases: list[str]
    night: str
    policy_version: str
    deployed: list[JsonObject] = Field(default=[], description="where services serve it, or did")


class VersionTrace(Trace):
    """The origin of a model version: the report of `clawpipe trace --json`."""

    model: TracedModel
