"""Say in words what the judges of a night said and spent, and what people decided, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.record.nights.status import JudgeCounts, NightJudges, ReviewedRows
from clawpipe.record.reporting.wording import moment

_OF_TURNS = ("praised", "blamed", "neutral", "unread", "abstained")
_OTHERS = {"verifier": "verifiers", "user": "users"}


def judge_lines(judges: NightJudges | None) -> list[tuple[str, str]]:
    """Return what there is to say: a name and a text for each line; none for a night without judges."""
    return list(_lines(judges)) if judges else []


def review_lines(reviews: Sequence[ReviewedRows]) -> list[tuple[str, str]]:
    """Return what people decided about the rows: a name and a text for each line."""
    return [(f"{one.verdict} rows", f"{one.rows} by {one.by}, {_when(one)}") for one in reviews]


def _when(one: ReviewedRows) -> str:
    return moment(one.first) if one.first == one.last else f"{moment(one.first)} to {moment(one.last)}"


def _lines(judges: NightJudges) -> Iterator[tuple[str, str]]:
    for name, counts in judges.said.items():
        yield f"judge {name}", _said(counts)
        if counts.rules:
            yield "", f"by rule: {_listed(counts.rules)}"
        for model, votes in counts.models.items():
            yield "", f"votes of {model}: {_listed(votes)}"
    for one in judges.agreement:
        kappa = "" if one["kappa"] is None else f", kappa {one['kappa']:.2f}"
        kind = "trajectories" if one["kind"] == "trajectory" else "turns"
        yield (
            "agreement",
            f"{one['judge']} and {_OTHERS.get(one['origin'], one['origin'])}: {one['agree']:.2f} of {one['n']} {kind}{kappa}",
        )
    for one in judges.spent:
        yield "spent", _spent(one)


def _said(counts: JudgeCounts) -> str:
    if counts.rollouts:
        agreed = f"; the verifier agrees on {counts.agreeing_pairs} of {counts.pairs} pairs" if counts.pairs else ""
        return f"{counts.ranked} of {counts.rollouts} rollouts ranked{agreed}"
    return f"{counts.turns} turns: " + ", ".join(f"{getattr(counts, name)} {name}" for name in _OF_TURNS)


def _spent(one: JsonObject) -> str:
    text = f"{one['judge']}: {one['requests']} requests, {one['tokens']} tokens, {one['seconds']:.0f} s"
    text += f", {one['money']:.4g} of money" if one["money"] else ""
    text += f"; {one['failed']} tries failed" if one["failed"] else ""
    text += f"; the tokens of {one['estimated']} requests are estimated" if one["estimated"] else ""
    return text + (f"; {one['held_tokens']} tokens of answers that were lost" if one["held_tokens"] else "")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
