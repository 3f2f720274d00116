"""Conclude a night: read figures, verdict and model from its steps, and count the evidence left for the next night."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.environment import EnvironmentConfig, WeightedEnvironment
from clawpipe.core.config.several import drawn_from
from clawpipe.core.store.home import Home
from clawpipe.errors import ClawpipeError
from clawpipe.learn.evaluation.rounds import Choice
from clawpipe.learn.evaluation.verdict.looks import Looks, SeveralLooks, looks_at
from clawpipe.learn.evaluation.verdict.statistics import wilson
from clawpipe.record.nights.files import run_dir
from clawpipe.record.nights.status import EvidenceLeft, Figures, NightStatus, RegisteredModel, nothing_learnt

_DRAWS = {"draw_heldout", "draw_conversations", "draw_pairs"}
_BENCHMARK = "benchmark/"
_CONFIDENCE = 0.95


def conclude(status: NightStatus) -> NightStatus:
    """Complete the status of a night that has its verdict; returns the same object."""
    details = {step.name: step.details for step in status.steps}
    verdict = details["gate"]
    idle = [why for step in status.steps if (why := nothing_learnt(step))]
    status.verdict, status.reasons = verdict["decision"], [*idle, *verdict["reasons"]]
    status.heldout |= {role: _figures(model) for role, model in verdict["models"].items()}
    status.benchmark = {
        step.name.removeprefix(_BENCHMARK): _share(step.details["success"], step.rows_out)
        for step in status.steps
        if step.name.startswith(_BENCHMARK) and step.rows_out
    }
    status.measure = verdict.get("measure", "success")  # older verdicts do not say
    status.policy_version = verdict["models"]["candidate"]["policy_version"]
    if "choose_round" in details:
        status.choice = Choice.model_validate(details["choose_round"])
    if "register" in details:
        status.model = RegisteredModel(**details["register"]["model"], aliases=details.get("promote", {}).get("aliases", []))
    return status


def count_evidence(status: NightStatus, ledger: Looks | SeveralLooks, a_night: int) -> NightStatus:
    """Fill in how much fresh evidence is left for nights like this one; returns the same object."""
    drawn = next((step.details for step in status.steps if step.name in _DRAWS), {})
    if "available" in drawn:
        status.evidence_left = _left(drawn | {"a_night": a_night}, len(ledger.seen()), drawn["fresh"])
    if drawn.get("supplies") and isinstance(ledger, SeveralLooks):
        status.evidence_left = _scarcest(drawn["supplies"], ledger)
    return status


def _scarcest(supplies: Mapping[str, JsonObject], ledger: SeveralLooks) -> EvidenceLeft:
    """Return the evidence left of the environment that runs out first."""
    fresh = Counter[str]()  # by the name that looks are counted by: two environments may share it
    for supply in supplies.values():
        fresh[supply["name"]] += supply.get("fresh", 0)
    left = [_left(supply, len(ledger.seen_of(supply["name"])), fresh[supply["name"]], label) for label, supply in supplies.items()]
    return min(left, key=lambda one: math.inf if one.nights is None else one.nights)


def _left(supply: Mapping[str, Any], seen: int, fresh: int, label: str = "") -> EvidenceLeft:
    """Return the evidence left of a supply; see `draw_heldout`.

    Args:
        seen: how many identities of its name have been looked at by now. Where that is more than the night knew and drew, later
            nights looked, perhaps at others than this supply's. Nights of 0.3 and before did not say what they knew.
        fresh: how many of this name the night drew that no night had looked at.
    """
    looked = seen
    if "left" in supply:
        looked = supply["available"] - supply["left"] + max(seen - supply["known"] - fresh, 0)
    return EvidenceLeft(available=supply["available"], looked_at=looked, a_night=supply["a_night"], environment=label)


def count_evidence_in(home: Home, status: NightStatus) -> NightStatus:
    """Fill in the evidence left for a night of this home; unchanged if its settings cannot be read any more."""
    try:
        settings = json.loads((run_dir(home, status.night) / "config.json").read_bytes())
        single = EnvironmentConfig.model_validate(settings["environment"])
        several = [WeightedEnvironment.model_validate(part) for part in settings.get("environments") or ()]
        ledger = looks_at(home.root, settings["registry"]["model_name"], drawn_from(single, several))
        return count_evidence(status, ledger, single.heldout_items)
    except (OSError, ValueError, KeyError, TypeError, ClawpipeError):
        return status


def evidence_warning(status: NightStatus) -> str | None:
    """Return a warning if held-out items run out, else None.

    A night on conversations asks about all that it holds out, so their end is no surprise: `EvidenceLeft.sentence` says it.
    """
    looked = next((step.details for step in status.steps if step.name == "record_look"), None)
    fix = "Let the environment make more (`distinct_items`, docs/environments.md), or ask for fewer (environment.heldout_items)."
    if status.measure != "success":
        fix = "Ingest new conversations before the next night."
    if looked and looked["fresh"] < looked["identities"]:
        return f"Only {looked['fresh']} of the {looked['identities']} held-out identities were fresh. {fix}"
    left = status.evidence_left
    if left and left.nights is not None and left.nights < 1 and status.measure == "success":
        return f"Held-out items run out: {left.sentence()}. {fix}"
    return None


def _share(successes: int, n: int) -> Figures:
    low, high = wilson(successes, n, _CONFIDENCE)
    return Figures(success=successes / n, low=low, high=high, n=n)


def _figures(model: JsonObject) -> Figures | None:
    """Return None if every item ended in an error."""
    if model["success"] is None:
        return None
    return Figures.model_validate({name: model.get(name) for name in Figures.model_fields})
