"""The end of a night: its figures, its verdict, its model, drawn from its own steps."""

from __future__ import annotations

from typing import Any

from clawpipe.nights.record import Figures, NightStatus, RegisteredModel


def conclude(status: NightStatus) -> NightStatus:
    """Complete the status of a night that has come to its verdict; the same object."""
    details = {step.name: step.details for step in status.steps}
    verdict = details["gate"]
    status.verdict, status.reasons = verdict["decision"], list(verdict["reasons"])
    status.heldout |= {role: _figures(model) for role, model in verdict["models"].items()}
    status.policy_version = verdict["models"]["candidate"]["policy_version"]
    if "register" in details:
        status.model = RegisteredModel(**details["register"]["model"], aliases=details.get("promote", {}).get("aliases", []))
    return status


def _figures(model: dict[str, Any]) -> Figures | None:
    """None where no item ended without an error."""
    if model["success"] is None:
        return None
    return Figures(**{name: model[name] for name in ("success", "low", "high", "n")})
