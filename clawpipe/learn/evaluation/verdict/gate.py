"""The gate: a pure function from evidence and rules to PROMOTE, HOLD or REJECT.

The candidate is compared with the incumbent (the champion; the base while there is none) on the same held-out items. Items that
share an identity are one observation in every test.

1. HOLD while there is no evidence: the artifact to be served is not the one that was evaluated; candidate and incumbent are
   the same model; an evaluation has errored items; the models were evaluated on different items; fewer identities than
   `min_items`.
2. REJECT when the candidate is worse overall (exact one-sided paired test, p < alpha), or when any slice lost more than
   `slice_margin` (p < alpha / number of slices, Bonferroni; see `statistics.beyond_margin`), however good the rest is.
3. PROMOTE when it is better (p < alpha / nights), by at least `min_effect`, no slice's success fell by more than `slice_margin`
   on these items, clear or not, and serving kept what was learnt: the artifact to be served diverges from what was trained
   by no more than `max_divergence` of what training changed.
4. HOLD otherwise, a tie included.

A promotion becomes HOLD where there are signs that the reward is gamed (evaluation/hacking.py, judging/gaming.py) and the
rules say so. Otherwise such signs are warnings.

Where the evidence is the likelihood of held-out conversations, the models are compared by it on each conversation (3 is then a sign
test), and HOLD is the most that it can show unless the rules say otherwise: a model that imitates better may do no task better.

A night is one look of many. The constant level alpha / nights keeps the chance of any false promotion in any `nights` nights in
a row at alpha at most (Bonferroni's inequality), on the last night as on the first. A false promotion stays in service; a false
rejection costs that night's candidate and nothing else, so REJECT is at alpha itself.

Where evidence adds up (`adds_up`), as it has to for a user with a few held-out items a night, 3 counts the fresh identities of all
nights of this model since its last promotion, by a bet on each (`statistics.betting_evidence`): its limit, 1 / alpha, holds over
any number of nights. Tonight's candidate must have won more than it lost, too, and `min_items` counts the nights together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from clawpipe.core.config.gate import Gate, Measure
from clawpipe.learn.evaluation.verdict.adding_up import AddedUp, points, tally_of
from clawpipe.learn.evaluation.verdict.comparing import (
    Pair,
    clusters_of,
    compare,
    compare_slices,
    differing,
    gain_of,
    identities,
    pairs_of,
)
from clawpipe.learn.evaluation.verdict.hacking import signs_of_hacking
from clawpipe.learn.evaluation.verdict.statistics import design_effect, items_needed, wilson
from clawpipe.learn.evaluation.verdict.verdict import (
    Comparison,
    Decision,
    Evidence,
    Freshness,
    ModelOutcomes,
    ModelSummary,
    SliceComparison,
    Tally,
    Verdict,
)

_TARGET_POWER = 0.9
# What the items of a measure are called, and what a model does with one.
_ITEMS: dict[Measure, tuple[str, str, str]] = {
    "success": ("items", "items won", "lost"),
    "preference accuracy": ("preference pairs", "pairs won", "lost"),
    "tool calls": ("turns with tool calls", "turns won", "lost"),
    "judged": ("conversations", "answers preferred", "not"),
    "likelihood": ("conversations", "conversations likelier", "less likely"),
}


_HELD_BACK = "There are signs that the reward is gamed, on which gate.hold_on_signs holds:"
_IMITATION = (
    "The evidence is likelihood: it shows that the candidate imitates held-out conversations better, and not that it does a task "
    "better."
)


@dataclass(frozen=True)
class _Words:
    """Words for the items of a measure."""

    measure: Measure

    def items(self, comparison: Comparison) -> str:
        return self.number(comparison.n, comparison.identities)

    def number(self, items: int, identities: int) -> str:
        named = f"{items} held-out {_ITEMS[self.measure][0]}"
        return named if items == identities else f"{named} of {identities} identities"

    def counts(self, comparison: Comparison) -> str:
        _, won, lost = _ITEMS[self.measure]
        return f"{comparison.wins} {won} and {comparison.losses} {lost}"


def decide(evidence: Evidence, rules: Gate) -> Verdict:
    """Return the verdict on the candidate. The order of the items has no influence, nor has anything but the arguments."""
    doubts = _doubts(evidence, rules)
    pairs = pairs_of(evidence)
    comparison = compare(clusters_of(pairs)) if pairs else None
    slices = compare_slices(pairs, rules.slice_margin)
    seen = signs_of_hacking(evidence.training, _can_gain(evidence, pairs, rules), comparison, evidence.incumbent_role, rules.alpha)
    tally = tally_of([(pair.identity, gain_of(pair)) for pair in pairs], evidence.seen) if rules.adds_up else None
    decision, reasons = Decision.HOLD, doubts
    if comparison and not doubts:
        decision, reasons = _judge(comparison, slices, rules, evidence, tally)
    signs = [*evidence.training.signs, *seen]
    if decision == Decision.PROMOTE and rules.hold_on_signs and signs:
        decision, reasons = Decision.HOLD, [*reasons, f"{_HELD_BACK} {signs[0]}"]
    return Verdict(
        decision=decision,
        measure=evidence.measure,
        reasons=(*reasons, *_looked_at(evidence.freshness)),
        incumbent=evidence.incumbent_role,
        models={role: _summary(model, evidence) for role, model in evidence.models()},
        comparison=comparison,
        slices=slices,
        fidelity=evidence.fidelity,
        freshness=evidence.freshness,
        warnings=tuple(seen),
        tally=tally,
    )


def _can_gain(evidence: Evidence, pairs: Sequence[Pair], rules: Gate) -> bool:
    """Whether the test would show a gain if the candidate solved every item; of measures without a best value it might."""
    if evidence.measure != "success" or not pairs:
        return True
    return compare(clusters_of([pair._replace(after=1.0) for pair in pairs])).p_better < rules.alpha


def _doubts(evidence: Evidence, rules: Gate) -> list[str]:
    """Return why these evaluations are no evidence; empty if they are."""
    candidate, role = evidence.candidate, evidence.incumbent_role
    doubts = []
    if evidence.served != candidate.policy_version:
        doubts.append(
            f"The artifact that would be served ({evidence.served[:12]}) is not the one that was evaluated "
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
        f"The {name} was evaluated on other items than the candidate ({differing(model, candidate)} differ)."
        for name, model in evidence.models()
        if differing(model, candidate)
    ]
    count = len(identities(candidate))
    earlier = sum(tally.identities for tally in evidence.earlier) if rules.adds_up else 0
    if count + earlier < rules.min_items:
        items = _Words(evidence.measure).number(len(candidate.items), count)
        doubts.append(f"The candidate was evaluated on {items}, too few: the rules ask for {rules.min_items} independent ones.")
        doubts += [f"Earlier nights of this model had {earlier} more."] if earlier else []
    return doubts


def _judge(
    overall: Comparison, slices: Sequence[SliceComparison], rules: Gate, evidence: Evidence, tally: Tally | None
) -> tuple[Decision, list[str]]:
    role, words = evidence.incumbent_role, _Words(evidence.measure)
    against = _against(overall, slices, rules, role, words)
    if against:
        return Decision.REJECT, against
    sum_of_nights = tally and AddedUp(tally, evidence.earlier, rules)
    unclear = sum_of_nights.missing(overall, role) if sum_of_nights else _unclear(overall, rules, role, words)
    missing = unclear + _shrunken(slices, rules, words) + _lost_in_serving(evidence)
    if missing:
        return Decision.HOLD, missing
    test = sum_of_nights.sentence if sum_of_nights else f"{words.counts(overall)}, p = {overall.p_better:.2g} < {_level(rules)}."
    better = f"The candidate beats the {role} by {points(overall.effect)} on {words.items(overall)}: {test}"
    if evidence.measure != "likelihood":
        return Decision.PROMOTE, [better]
    if rules.promote_on_likelihood:
        return Decision.PROMOTE, [better, f"{_IMITATION} gate.promote_on_likelihood lets it promote."]
    return Decision.HOLD, [better, f"{_IMITATION} It promotes only where gate.promote_on_likelihood is true."]


def _against(overall: Comparison, slices: Sequence[SliceComparison], rules: Gate, role: str, words: _Words) -> list[str]:
    """Return why the candidate is clearly worse; empty if it is not."""
    level = rules.alpha / max(len(slices), 1)
    reasons = []
    if overall.p_worse < rules.alpha:
        reasons.append(
            f"The candidate is worse than the {role} by {points(-overall.effect)} on {words.items(overall)}: "
            f"{words.counts(overall)}, p = {overall.p_worse:.2g} < {rules.alpha:g}."
        )
    reasons += [
        f"Slice {part.slice!r} lost {points(-part.effect)}, clearly more than the margin of {points(rules.slice_margin)}: "
        f"{words.counts(part)} on {words.items(part)}, p = {part.p_regression:.2g} < {level:.2g}."
        for part in slices
        if part.p_regression < level
    ]
    return reasons


def _unclear(overall: Comparison, rules: Gate, role: str, words: _Words) -> list[str]:
    """Return why the candidate is not clearly better; empty if it is."""
    reasons = []
    if overall.p_better >= rules.level:
        reasons.append(
            f"The candidate is not clearly better than the {role} on {words.items(overall)}: {words.counts(overall)}, "
            f"p = {overall.p_better:.2g}, not below {_level(rules)}.{_how_many(overall, rules)}"
        )
    elif overall.effect < rules.min_effect:
        reasons.append(
            f"The candidate is better than the {role}, but by {points(overall.effect)} only: "
            f"a promotion takes at least {points(rules.min_effect)}."
        )
    return reasons


def _shrunken(slices: Sequence[SliceComparison], rules: Gate, words: _Words) -> list[str]:
    """Return the slices that lost, clearly or not."""
    return [
        f"Slice {part.slice!r} lost {points(-part.effect)}, more than the margin of {points(rules.slice_margin)}: "
        f"{words.counts(part)} on {words.items(part)}, too few to be sure."
        for part in slices
        if part.effect < -rules.slice_margin
    ]


def _lost_in_serving(evidence: Evidence) -> list[str]:
    """Return a reason if merging or quantizing changed too much of what was learnt; else nothing."""
    found, limit = evidence.fidelity, evidence.max_divergence
    if found is None or found.divergence <= limit * found.learnt:
        return []
    share = f"{100 * found.divergence / found.learnt:.1f} %" if found.learnt else "more than all"
    return [
        f"Serving changes the model too much: KL(trained || served) is {found.divergence:.4g}, {share} of "
        f"KL(trained || base), {found.learnt:.4g}, on {found.positions} held-out tokens; serving.max_divergence allows "
        f"{100 * limit:g} %. Serve the adapter beside its base (serving.artifact: adapter), or quantize less "
        "(model.quantization, serving.quantization)."
    ]


def _how_many(overall: Comparison, rules: Gate) -> str:
    """Return a sentence: the number of independent items that would show the observed gain, or else the smallest gain that
    counts."""
    gain = max(overall.effect, rules.min_effect)
    if gain == 0:
        return ""
    discordant = max((overall.wins + overall.losses) / overall.n, gain)
    needed = items_needed(gain, discordant, rules.level, _TARGET_POWER)
    return f" A gain of {points(gain)} shows nine times in ten with about {needed} independent items."


def _looked_at(freshness: Freshness | None) -> list[str]:
    """Return one sentence about the number of earlier looks at the items."""
    if freshness is None:
        return []
    if freshness.fresh == freshness.identities:
        return [f"No earlier night has looked at any of the {freshness.identities} identities that this rests on."]
    return [
        f"Of the {freshness.identities} identities that this rests on, {freshness.fresh} are fresh; earlier nights have looked at "
        f"the others {freshness.looks:.1f} times on average."
    ]


def _summary(model: ModelOutcomes, evidence: Evidence) -> ModelSummary:
    n = len(model.items) - model.errors
    successes = sum(outcome.success is True for outcome in model.items.values())
    effect = design_effect(list(identities(model).values())) if n else 1.0
    low, high = wilson(successes / effect, n / effect, evidence.confidence) if n else (None, None)
    values = [outcome.value for outcome in model.items.values() if outcome.value is not None]
    return ModelSummary(
        policy_version=model.policy_version,
        success=successes / n if n else None,
        low=low,
        high=high,
        n=n,
        errors=model.errors,
        log_prob=fmean(values) if values and evidence.measure == "likelihood" else None,
    )


def _level(rules: Gate) -> str:
    return f"{rules.level:.2g}" + (f" ({rules.alpha:g} over {rules.nights} nights)" if rules.nights > 1 else "")
