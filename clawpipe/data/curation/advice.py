"""Advise which setting to change if curation leaves nothing to train on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from clawpipe.core.store.refs import StepResult
from clawpipe.core.user_code.user_errors import LOG
from clawpipe.errors import DataError

_TEXT = (
    "set train.method to sft or dpo, which learn from text and from tokens whose log-probs are no use; "
    "or say at ingest what the log-probs are (docs/ingest.md)"
)
_JUDGE = "judge the rows first: name stored `scores`, or ingest with --labels"
_VARY = "vary the rollouts more (rollouts.temperature, rollouts.group_size), or learn from other items (environment.train_items)"
_FILTERS, _PAIRS, _DRAWS = (f"loosen what curation.{block} asks for" for block in ("filters", "pairs", "sampling"))
_HELDOUT = "these are questions that the night keeps for its verdict: learn from others, or ask others (environment.seed)"
_UNJUDGED = ("no verifier score", "no score")
_FAILED = (*_UNJUDGED, "tokens not recorded")
_TRAINED_ON = ("samples", "preference_pairs")
_ANY = "see why in docs/curation.md, and the rows with `clawpipe contract check DIGEST`"

# The prefix of a reason, and the setting that keeps such rows; the longest prefix applies.
_REMEDIES: Mapping[str, str] = {
    **dict.fromkeys(_UNJUDGED, _JUDGE),
    "scorer ": f"episodes or the environment's `verify` failed: logs/{LOG} in the home has message, traceback and row",
    "replayed without success": "set curation.sampling.replay_nights to 0, or give the environment's outcomes `success`",
    "demonstration without success": "`clawpipe env check NAME` plays the environment's demonstrations: each has to succeed",
    "no success": "set curation.imitate to chosen, or curation.filters.success_only to false; or give rows that succeeded",
    "every turn blamed": "users or judges called each turn wrong: train kto or dpo on them, or add rows that went well",
    "no success in its group": f"no attempt at these items succeeded: {_VARY}",
    "no failure in its group": f"every attempt at these items succeeded: {_VARY}, or set train.method to sft",
    "tokens not recorded": _TEXT,
    "no log-probs of what was drawn from": _TEXT,
    "log-prob": _TEXT,
    "tokens of another vocabulary": "they are another model's: set train.method to sft and ingest the text without its tokens",
    "sampled at temperature 0": "sample above temperature 0 (rollouts.temperature), or set train.method to sft with text",
    **dict.fromkeys(["zero-variance group", "constant group"], _VARY),  # the latter in records of earlier nights
    "group of one": "compare several attempts at an item: rollouts.group_size of 2 and more, or set train.method to sft",
    "not the best of its group": "set curation.imitate to success or any",
    "no hint": "opd and combine learn from hints: of the environment (`hindsight`, docs/environments.md), or ingested from judges",
    "no turn score": "set curation.credit to group, or ingest records with scores of turns",
    "steps do not differ": "set curation.credit to turn, or generate more attempts at an item",
    "only neutral turns": "set curation.credit to group, or ingest records with scores of turns",
    "nothing to train on": "every turn of these rows is a side turn, which is context alone: ingest others (docs/ingest.md)",
    "too long": "raise curation.max_tokens, or for sft, dpo and kto set curation.compress",
    "attempt ": "name the endings to learn from in curation.filters.endings",
    "too short": _FILTERS,
    "too few turns": _FILTERS,
    "too many": _FILTERS,
    "score out of range": _FILTERS,
    "reply ": _FILTERS,
    "policy version": "raise curation.max_staleness, or set it to null",
    "policy not the newest": "set curation.pairs.strategy to all-margin",
    "held-out": _HELDOUT,
    "canary": "shorten curation.canaries",
    "near-duplicate": "set curation.near.duplicates to false, or raise curation.near.threshold",
    "beyond the share of demonstrations": "raise curation.demonstrations.share",
    "beyond": "raise what curation.quotas and curation.sampling allow",
    "outside the difficulty band": _DRAWS,
    "source not in the mixture": _DRAWS,
    "in no pair": _PAIRS,
    "waits for approval": "approve rows with `clawpipe review`, or set curation.approved_only to false",
    "rejected by a person": "take decisions back with `clawpipe review reopen ROW`, or learn from other rows",
    "edited by a person": "the edited answers are text: set train.method to sft, kto or dpo, which learn from it",
    "opposite of another pair": "two sources prefer opposite answers: name the scores or preferences of one of them",
    "prompts differ": _PAIRS,
    "temperatures differ": _PAIRS,
    "sides nearly identical": _PAIRS,
    "margin too small": _PAIRS,
    "lengths too different": _PAIRS,
    "not best against worst": _PAIRS,
    "not the nearest in length": _PAIRS,
}
_METHODS_OWN: Mapping[tuple[str, str], str] = {
    ("sft", "no verifier score"): f"set curation.imitate to any, which imitates what nobody judged; or {_JUDGE}",
}


def nothing_to_learn(results: Sequence[StepResult], method: str, least: int = 1) -> DataError:
    """Return the error of a night whose steps filtered every row, or left fewer than it may train on.

    Args:
        results: of all steps that may filter rows, in the order of the night.
        method: the setting `train.method`.
        least: the setting `curation.min_samples`.
    """
    left = max((result.rows_out for result in results if result.output and result.output.name in _TRAINED_ON), default=0)
    if 0 < left < least:
        what = f"too little to learn from: {left} rows are left to train on, and curation.min_samples asks for {least}"
        return DataError(
            what, "curation", "wait for more data, which stay new until a night uses them; or lower curation.min_samples"
        )
    filtered = sum((Counter(result.filtered) for result in results), Counter())
    counted = sum(count for name, count in filtered.items() if name.startswith("scorer "))
    for reason in _FAILED:  # for which curation filters what the scorer raised on, too
        again = min(counted, filtered[reason])
        counted, filtered[reason] = counted - again, filtered[reason] - again
    filtered = +filtered
    reasons = ", ".join(f"{count} x {reason}" for reason, count in filtered.most_common())
    if not reasons:
        return DataError(
            f"nothing to learn from: no row came in, and {method} trained nothing",
            "train",
            "name stored datasets in `trajectories`, or set `rollouts`",
        )
    first = filtered.most_common(1)[0][0]
    what = f"nothing to learn from: {filtered.total()} rows were filtered and none was left for {method} to train on ({reasons})"
    return DataError(what, "curation", remedy(first, method))


def remedy(reason: str, method: str) -> str:
    """Return the setting that keeps rows with this reason, for this method."""
    known = max((begin for begin in _REMEDIES if reason.startswith(begin)), key=len, default="")
    return _METHODS_OWN.get((method, known)) or _REMEDIES.get(known, _ANY)
