"""The summary of a night that the registry and trackers store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.learn.evaluation.verdict.verdict import ModelSummary, Verdict


class NightSummary(BaseModel):
    """A candidate's night."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    compared: str = Field(description="one sentence that says what the night learns from and compares")
    champion: str | None = Field(description="version that the candidate was compared with")
    model_name: str
    config: JsonObject = Field(description="settings that change results")


def final_metrics(verdict: Verdict) -> dict[str, float | None]:
    """Return the verdict's figures by the names that trackers show; None if a figure could not be computed."""
    metrics: dict[str, float | None] = {}
    for role, model in verdict.models.items():
        metrics |= {f"heldout/{role}": model.success, f"heldout/{role}_low": model.low, f"heldout/{role}_high": model.high}
        if model.log_prob is not None:
            metrics[f"heldout/{role}_log_prob"] = model.log_prob
    if verdict.comparison:
        metrics |= {f"gate/{name}": getattr(verdict.comparison, name) for name in ("effect", "p_better", "p_worse")}
    return metrics


def description(compared: str, verdict: Verdict) -> str:
    """Describe a version in a few lines of Markdown: the verdict, what was compared, the figures, the reasons."""
    what = "" if verdict.measure == "success" else f"Held-out {verdict.measure}:"
    figures = [*filter(None, [what]), *(f"- {role}: {_figure(model)}" for role, model in verdict.models.items())]
    reasons = [f"- {reason}" for reason in verdict.reasons]
    return "\n".join([f"**{verdict.decision.value}**: {compared}", "", *figures, "", *reasons])


def readable_tags(method: str, base: str, environment: str, verdict: Verdict) -> dict[str, str]:
    """Return the tags by which a list of versions can be read and searched."""
    figures = {f"heldout.{role}": _figure(model) for role, model in verdict.models.items()}
    return {"verdict": verdict.decision.value, "method": method, "base": base, "environment": environment, **figures}


def run_title(night: str, settings: Mapping[str, Any]) -> str:
    """Return the name of a night's run: its id and its method, so that a list of runs says what trained them."""
    method = (settings.get("train") or {}).get("method")
    return f"{night} {method}" if method else night


def tags_of_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a night that begins, by which a list of runs can be read; a verdict takes the place of `none yet`."""
    train, model, environment = (settings.get(part) or {} for part in ("train", "model", "environment"))
    names = ", ".join(part["name"] for part in settings.get("environments") or [environment] if "name" in part)
    known = {"method": train.get("method"), "base": model.get("base"), "environment": names}
    return {"verdict": "none yet", **{name: str(value) for name, value in known.items() if value}}


def _figure(model: ModelSummary) -> str:
    if model.success is None:
        return "no figure: items ended in errors"
    share = f"{model.success:.3f} [{model.low:.3f}, {model.high:.3f}] of {model.n} items"
    if model.log_prob is None:
        return share
    return f"{model.log_prob:.3f} nats per token; likelier than under the base: {share.replace('items', 'conversations')}"
