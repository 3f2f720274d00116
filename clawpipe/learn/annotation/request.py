"""The request of an annotation, and the names of its output files."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from clawpipe.core.config.methods import Opd
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.play.environments.openings import Opening

TOKEN_SCORES, SUMMARY = "token_scores.parquet", "facts.json"  # in the outcome directory

Role = Literal["reference", "proximal", "teacher", "student"]


class Hindsight(BaseModel):
    """The files of hints, and of the prompts that they are put into."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scores: tuple[str, ...] = Field(description="Parquet files in the layout of the scores contract")
    items: tuple[str, ...] = Field(description="Parquet files in that of task_items")
    openings: tuple[Opening, ...] = Field(description="tools and preamble of each environment")


class AnnotateRequest(BaseModel):
    """The rows to score, and the policies that score them. `device`, `threads` and paths do not change the result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["samples", "preference_pairs"]
    rows: tuple[str, ...] = Field(description="Parquet files in the layout of that contract, in order")
    policies: dict[Role, PolicySpec] = Field(
        min_length=1, description="policies by role; `student` is the policy that learns, `teacher` the one that sees the hints"
    )
    hindsight: Hindsight | None = Field(default=None, description="for a teacher")
    config: Opd
    pack_tokens: int
    temperature: float = Field(gt=0, description="temperature of the log-probs of rows that recorded none")
    device: str = "auto"
    threads: int = Field(default=0, ge=0, description="CPU threads; 0 uses every core")
    output: str = Field(description="directory of the outcome")

    @model_validator(mode="after")
    def _teacher_has_a_student(self) -> AnnotateRequest:
        if "teacher" in self.policies and ("student" not in self.policies or self.hindsight is None or self.kind != "samples"):
            raise ValueError("a teacher scores samples, and needs a student and hindsight")
        return self
