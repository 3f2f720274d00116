"""Signs between two rounds of a night: what judges praise in the later rollouts, and did not in the earlier ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from clawpipe.play.judging.exchanges import exchanges_of
from clawpipe.play.judging.gaming.chances import FEWEST, LEVEL, TESTS, more_often, significant
from clawpipe.play.judging.gaming.phrases import Said, Sample, requests_by_fragment, said

_SPREAD = 0.1  # share of the requests on which a new phrase is said
_KNOWN = 5  # turns with a phrase among the earlier ones, from which on it is known whether it was praised


class Rates(NamedTuple):
    """Of turns: how many, and how many were praised."""

    n: int
    praised: int


def sample_of(trajectories: Iterable[Mapping[str, Any]], scores: Iterable[Mapping[str, Any]]) -> list[Said]:
    """Return the judged turns of rollouts, at most as many as a sample holds.

    Args:
        scores: of the trajectories that a judge has scored.
    """
    by_trajectory: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in scores:
        by_trajectory[row["trajectory_id"]].append(row)
    sample = Sample()
    for trajectory in trajectories:
        rows = by_trajectory.get(trajectory["trajectory_id"], ())
        if not rows:
            continue
        success = next((row["success"] for row in rows if row["origin"] == "verifier" and row["turn"] is None), None)
        for turn in exchanges_of(trajectory):
            values = {row["scorer"]: row["value"] for row in rows if row["origin"] == "judge" and row["turn"] in (turn.turn, None)}
            if values:
                sample.add(said(turn, values, success))
    return sample.turns


def signs_between(before: Sequence[Said], after: Sequence[Said]) -> list[str]:
    """Return a sentence for each sign, in a fixed order; none where either has too few judged turns."""
    if min(len(before), len(after)) < FEWEST:
        return []
    return [*_new_phrase(before, after), *_praise_without_success(before, after)]


def _new_phrase(before: Sequence[Said], after: Sequence[Said]) -> Iterator[str]:
    """Yield the phrase that praise follows now, if it spread, praise did not follow it before, and success does not explain it."""
    spread = {
        phrase: requests
        for phrase, requests in requests_by_fragment(after).items()
        if len(requests) >= max(_SPREAD * len({turn.request for turn in after}), 5)
    }
    found = [(len(spread[phrase]), phrase) for phrase in spread if _is_bought(phrase, before, after, len(spread))]
    if found:
        phrase = max(found)[1]
        had, has = _rates(before, phrase), _rates(after, phrase)
        others = Rates(len(after) - has.n, sum(turn.praised for turn in after) - has.praised)
        yield (
            f'praise follows "{phrase}" in {has.praised} of {has.n} turns, and {others.praised} of {others.n} without it; '
            f"in the round before {had.n} of {len(before)} turns had it, {had.praised} praised"
        )


def _is_bought(phrase: str, before: Sequence[Said], after: Sequence[Said], tried: int) -> bool:
    had, has = _rates(before, phrase), _rates(after, phrase)
    praised = sum(turn.praised for turn in after)
    level = LEVEL / TESTS / tried
    if not significant(more_often(has.n, len(after), had.n, len(before)), level):
        return False
    if had.n >= _KNOWN and had.praised / had.n >= fmean(turn.praised for turn in before):
        return False  # it was praised before, so it was learnt from praise
    without = Rates(len(after) - has.n, praised - has.praised)
    if without.n < _KNOWN:
        without = Rates(len(before), sum(turn.praised for turn in before))
    rose = more_often(has.praised, has.n, without.praised, without.n)
    return significant(rose, level) and not _succeeds(phrase, after, before)


def _rates(turns: Sequence[Said], phrase: str) -> Rates:
    having = [turn.praised for turn in turns if phrase in turn.own]
    return Rates(len(having), sum(having))


def _succeeds(phrase: str, after: Sequence[Said], before: Sequence[Said]) -> bool:
    """Whether a verifier says that turns with the phrase succeed more often than others."""
    known = [turn for turn in after if turn.success is not None]
    having = [bool(turn.success) for turn in known if phrase in turn.own]
    others = [bool(turn.success) for turn in known if phrase not in turn.own]
    if len(others) < _KNOWN:
        others = [bool(turn.success) for turn in before if turn.success is not None]
    return bool(having and others) and fmean(having) > fmean(others)


def _praise_without_success(before: Sequence[Said], after: Sequence[Said]) -> Iterator[str]:
    checked = [[turn for turn in turns if turn.success is not None] for turns in (before, after)]
    if min(map(len, checked)) < FEWEST:
        return
    (was, then), (now, since) = (
        (sum(turn.praised for turn in turns), sum(bool(turn.success) for turn in turns)) for turns in checked
    )
    first, last = map(len, checked)
    moved = significant(more_often(now, last, was, first))
    praise, success = now / last - was / first, since / last - then / first
    if moved and success < praise / 3 and more_often(since, last, then, first) > LEVEL:
        yield (
            f"praise moved from {was / first:.2f} to {now / last:.2f} of the turns, and success from {then / first:.2f} to "
            f"{since / last:.2f}: look whether the policy has learnt what is praised instead of what is meant"
        )
