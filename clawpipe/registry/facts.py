"""What the registry is told about a night."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.evaluation.verdict import Verdict


class NightFacts(BaseModel):
    """The night of a candidate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    compared: str = Field(description="what it learns from and what is compared, in one sentence")
    champion: str | None = Field(description="version that the candidate was compared with")
    model_name: str
    config: dict[str, Any] = Field(description="settings that change results")


def final_metrics(verdict: Verdict) -> dict[str, float | None]:
    """The verdict's figures under the names that trackers show; None is what could not be computed."""
    metrics: dict[str, float | None] = {}
    for role, model in verdict.models.items():
        metrics |= {f"heldout/{role}": model.success, f"heldout/{role}_low": model.low, f"heldout/{role}_high": model.high}
    if verdict.comparison:
        metrics |= {f"gate/{name}": getattr(verdict.comparison, name) for name in ("effect", "p_better", "p_worse")}
    return metrics
