"""The gate: a pure function from evidence and policy to PROMOTE, HOLD or REJECT.

The candidate is compared with the incumbent (the champion; the base while there is none) on the same held-out items:

1. HOLD while there is no evidence: the artefact to be served is not the one that was evaluated; candidate and incumbent are
   the same model; an evaluation has errored items; the models were evaluated on different items; fewer paired items than
   `min_items`.
2. REJECT when the candidate is worse overall (exact one-sided paired test, p < alpha), or when any slice lost more than
   `slice_margin` (p < alpha / number of slices, Bonferroni; see `statistics.beyond_margin`), however good the rest is.
3. PROMOTE when it is better (p < alpha), by at least `min_effect`, no slice's success fell by more than `slice_margin`
   on these items, clear or not, and serving kept what was learnt: the artefact to be served diverges from what was trained
   by no more than `max_divergence` of what training changed.
4. HOLD otherwise, a tie included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from clawpipe.config.night import Gate
from clawpipe.evaluation.statistics import beyond_margin, items_needed, mcnemar, wilson
from clawpipe.evaluation.verdict import Comparison, Decision, Evidence, ModelOutcomes, ModelSummary, SliceComparison, Verdict

Pair = tuple[bool, bool]  # success of the incumbent, success of the candidate
_TARGET_POWER = 0.9


def decide(evidence: Evidence, policy: Gate) -> Verdict:
    """The verdict on the candidate. Neither the order of the items nor anything outside of the arguments has influence."""
    doubts = _doubts(evidence, policy)
    pairs = _pairs(evidence)
    comparison = _compare(list(pairs.values())) if pairs else None
    slices = _compare_slices(evidence, pairs, policy)
    decision, reasons = Decision.HOLD, doubts
    if comparison and not doubts:
        decision, reasons = _judge(comparison, slices, policy, evidence)
    return Verdict(
        decision=decision,
        reasons=tuple(reasons),
        incumbent=evidence.incumbent_role,
        models={role: _summary(model, evidence.confidence) for role, model in evidence.models()},
        comparison=comparison,
        slices=slices,
        fidelity=evidence.fidelity,
    )


def _doubts(evidence: Evidence, policy: Gate) -> list[str]:
    """Why these evaluations are no evidence; empty when they are."""
    candidate, role = evidence.candidate, evidence.incumbent_role
    doubts = []
    if evidence.served != candidate.policy_version:
        doubts.append(
            f"The artefact that would be served ({evidence.served[:12]}) is not the one that was evaluated "
            f"({candidate.policy_version[:12]})."
        )
    if candidate.policy_version == evidence.incumbent.policy_version:
        doubts.append(f"The candidate and the {role} are the same model ({candidate.policy_version[:12]}).")
    doubts += [
        f"The evaluation of the {name} is no evidence: {model.errors} of {len(model.items)} items ended in an error."
        for name, model in evidence.models()
        if model.errors
    ]
    doubts += [
        f"The {name} was evaluated on other items than the candidate ({_differing(model, candidate)} differ)."
        for name, model in evidence.models()
        if _differing(model, candidate)
    ]
    if len(candidate.items) < policy.min_items:
        few = f"The candidate was evaluated on {len(candidate.items)} held-out items, too few"
        doubts.append(f"{few}: the policy asks for {policy.min_items}.")
    return doubts


def _differing(left: ModelOutcomes, right: ModelOutcomes) -> int:
    """Items that only one of them has, or that carry another slice."""
    named = [{(item, outcome.slice) for item, outcome in model.items.items()} for model in (left, right)]
    return len({item for item, _ in named[0] ^ named[1]})


def _pairs(evidence: Evidence) -> dict[str, Pair]:
    """Outcomes by item, or nothing where an item lacks one."""
    incumbent, candidate = evidence.incumbent, evidence.candidate
    if _differing(incumbent, candidate) or incumbent.errors or candidate.errors:
        return {}
    return {item: (bool(incumbent.items[item].success), bool(outcome.success)) for item, outcome in candidate.items.items()}


def _compare(pairs: Sequence[Pair]) -> Comparison:
    wins = sum(after and not before for before, after in pairs)
    losses = sum(before and not after for before, after in pairs)
    return Comparison(
        n=len(pairs),
        wins=wins,
        losses=losses,
        effect=(wins - losses) / len(pairs),
        p_better=mcnemar(wins, losses),
        p_worse=mcnemar(losses, wins),
    )


def _compare_slices(evidence: Evidence, pairs: dict[str, Pair], policy: Gate) -> tuple[SliceComparison, ...]:
    members: defaultdict[str, list[Pair]] = defaultdict(list)
    for item, pair in pairs.items():
        members[evidence.candidate.items[item].slice].append(pair)
    return tuple(_compare_slice(name, members[name], policy.slice_margin) for name in sorted(members))


def _compare_slice(name: str, pairs: Sequence[Pair], margin: float) -> SliceComparison:
    part = _compare(pairs)
    regression = beyond_margin(part.wins, part.losses, part.n, margin)
    return SliceComparison(slice=name, p_regression=regression, **part.model_dump())


def _judge(overall: Comparison, slices: Sequence[SliceComparison], policy: Gate, evidence: Evidence) -> tuple[Decision, list[str]]:
    role = evidence.incumbent_role
    against = _against(overall, slices, policy, role)
    if against:
        return Decision.REJECT, against
    missing = _missing(overall, slices, policy, role) + _lost_in_serving(evidence)
    if missing:
        return Decision.HOLD, missing
    return Decision.PROMOTE, [
        f"The candidate beats the {role} by {_points(overall.effect)} on {overall.n} held-out items: {_counts(overall)}, "
        f"p = {overall.p_better:.2g} < {policy.alpha:g}."
    ]


def _against(overall: Comparison, slices: Sequence[SliceComparison], policy: Gate, role: str) -> list[str]:
    """Why the candidate is clearly worse."""
    level = policy.alpha / max(len(slices), 1)
    reasons = []
    if overall.p_worse < policy.alpha:
        reasons.append(
            f"The candidate is worse than the {role} by {_points(-overall.effect)} on {overall.n} held-out items: "
            f"{_counts(overall)}, p = {overall.p_worse:.2g} < {policy.alpha:g}."
        )
    reasons += [
        f"Slice {part.slice!r} lost {_points(-part.effect)}, clearly more than the margin of {_points(policy.slice_margin)}: "
        f"{_counts(part)} on {part.n} items, p = {part.p_regression:.2g} < {level:.2g}."
        for part in slices
        if part.p_regression < level
    ]
    return reasons


def _missing(overall: Comparison, slices: Sequence[SliceComparison], policy: Gate, role: str) -> list[str]:
    """What a promotion lacks."""
    reasons = []
    if overall.p_better >= policy.alpha:
        reasons.append(
            f"The candidate is not clearly better than the {role} on {overall.n} held-out items: {_counts(overall)}, "
            f"p = {overall.p_better:.2g}, not below {policy.alpha:g}.{_how_many(overall, policy)}"
        )
    elif overall.effect < policy.min_effect:
        reasons.append(
            f"The candidate is better than the {role}, but by {_points(overall.effect)} only: "
            f"a promotion takes at least {_points(policy.min_effect)}."
        )
    reasons += [
        f"Slice {part.slice!r} lost {_points(-part.effect)}, more than the margin of {_points(policy.slice_margin)}: "
        f"{_counts(part)} on {part.n} items, too few to be sure."
        for part in slices
        if part.effect < -policy.slice_margin
    ]
    return reasons


def _lost_in_serving(evidence: Evidence) -> list[str]:
    """What merging or quantising changed of what was learnt, where it is too much."""
    found, limit = evidence.fidelity, evidence.max_divergence
    if found is None or found.divergence <= limit * found.learnt:
        return []
    share = f"{100 * found.divergence / found.learnt:.1f} %" if found.learnt else "more than all"
    return [
        f"Serving changes the model too much: KL(trained || served) is {found.divergence:.4g}, {share} of "
        f"KL(trained || base), {found.learnt:.4g}, on {found.positions} held-out tokens; serving.max_divergence allows "
        f"{100 * limit:g} %. Serve the adapter beside its base (serving.artefact: adapter), or hold more bits "
        "(model.quantization, serving.quantization)."
    ]


def _how_many(overall: Comparison, policy: Gate) -> str:
    """How many items would settle it, for the gain that was seen or else the smallest that counts."""
    gain = max(overall.effect, policy.min_effect)
    if gain == 0:
        return ""
    discordant = max((overall.wins + overall.losses) / overall.n, gain)
    needed = items_needed(gain, discordant, policy.alpha, _TARGET_POWER)
    return f" A gain of {_points(gain)} shows nine times in ten with about {needed} items."


def _summary(model: ModelOutcomes, confidence: float) -> ModelSummary:
    n = len(model.items) - model.errors
    successes = sum(outcome.success is True for outcome in model.items.values())
    low, high = wilson(successes, n, confidence) if n else (None, None)
    return ModelSummary(
        policy_version=model.policy_version, success=successes / n if n else None, low=low, high=high, n=n, errors=model.errors
    )


def _counts(comparison: Comparison) -> str:
    return f"{comparison.wins} items won and {comparison.losses} lost"


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"
