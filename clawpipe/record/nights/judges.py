"""What the judges of a night said and spent, and how far they agree with people, verifiers and each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef
from clawpipe.play.judging.judged_scores import judged_scores
from clawpipe.play.judging.report import agreements
from clawpipe.play.judging.spending import spent_in
from clawpipe.play.judging.votes import votes_file
from clawpipe.record.nights.status import JudgeCounts, NightJudges, NightStatus, StepEntry


def judges_of(status: NightStatus, home: Home, store: Store, stored: Sequence[DatasetRef]) -> NightJudges | None:
    """Return what judges did in the steps of a night so far; None if it has none.

    Args:
        stored: scores from before the night, those of people among them.
    """
    scored = {step.digest: step for step in status.steps if step.name.split("/")[-1] == "score"}  # a cached one counts once
    counts = _counts(scored.values())
    spent = [asdict(one) | {"tokens": one.tokens} for one in spent_in(votes_file(home), status.night)]
    if not counts and not spent:
        return None
    refs = [ref for step in scored.values() if isinstance(ref := step.artifacts.get("output"), DatasetRef)]
    agreed = agreements(judged_scores(store, [*refs, *stored])) if counts else []
    return NightJudges(said=counts, agreement=[asdict(one) for one in agreed], spent=spent)


def _counts(scored: Iterable[StepEntry]) -> dict[str, JudgeCounts]:
    found: dict[str, JudgeCounts] = {}
    for step in scored:
        for name, counts in step.details.get("judges", {}).items():
            found[name] = JudgeCounts.model_validate(_added(found[name].model_dump(), counts) if name in found else counts)
    return found


def _added(one: Mapping[str, JsonObject | int], other: Mapping[str, JsonObject | int]) -> JsonObject:
    """Return the sums of counts, whatever lies in each other."""
    total: JsonObject = dict(one)
    for name, value in other.items():
        before = total.get(name)
        total[name] = _added(before or {}, value) if isinstance(value, Mapping) else (before or 0) + value
    return total
