"""Report how far judges can be trusted: agreement among their votes, and with verifiers and users, by kind of turn; and costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import fmean

from clawpipe.core.basics.json_types import Row
from clawpipe.play.judging.gaming.people import Signs
from clawpipe.play.judging.votes import Vote

PEOPLE_AND_CHECKS = ("verifier", "user")
_RANKERS = ("group",)  # their values are places, which have no sign


@dataclass(frozen=True)
class Agreement:
    """How often a judge's score of a trajectory or turn and somebody else's have the same sign; neutral scores are left out.

    Attributes:
        origin: verifier or user, or the name of another judge.
        kappa: Cohen's kappa (1960), agreement beyond chance; None where one side always says the same.
    """

    judge: str
    origin: str
    kind: str
    n: int
    agree: float
    kappa: float | None


@dataclass(frozen=True)
class Spoken:
    """What a judge, a model or none, said in all stored scores: of turns, and how many rollouts it ranked."""

    judge: str
    turns: int
    praised: int
    blamed: int
    neutral: int
    rollouts: int


@dataclass(frozen=True)
class Judged:
    """Statistics of one model's votes.

    Attributes:
        agreement: mean share of the pairs of valid votes on a turn that agree; None without such a pair.
        unanimous: share of the turns with several valid votes on which all agree; 1.0 can mean that nothing is read.
        values: valid votes by value.
    """

    model: str
    prompt_version: str
    votes: int
    turns: int
    malformed: int
    agreement: float | None
    unanimous: float | None
    values: Mapping[int, int]
    prompt_tokens: int
    reply_tokens: int
    seconds: float
    sample: Sequence[Vote] = field(default=(), repr=False)


def judged(votes: Iterable[Vote], sample: int = 3) -> list[Judged]:
    """Return what the votes of each model with each version of the prompt show.

    Args:
        votes: in any order.
        sample: number of votes to read, one a turn, the first turns by digest.
    """
    by_model: defaultdict[tuple[str, str], list[Vote]] = defaultdict(list)
    for vote in votes:
        by_model[vote.model, vote.prompt_version].append(vote)
    return [_judged(model, version, by_model[model, version], sample) for model, version in sorted(by_model)]


def spoken(scored: Iterable[Sequence[Row]]) -> list[Spoken]:
    """Return what each judge said of turns; equal scores that several nights have stored count once.

    Args:
        scored: the scores of each trajectory, in stored order.
    """
    said: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for rows in scored:
        last = {(row["scorer"], row["turn"]): row["value"] for row in rows if row["origin"] == "judge"}
        for (name, turn), value in last.items():
            words = ("rows",) if turn is None else ("rows", "praised" if value > 0 else "blamed" if value < 0 else "neutral")
            said[name].update(words)
    return [_spoken(name, said[name]) for name in sorted(said)]


def _spoken(name: str, said: Counter[str]) -> Spoken:
    turns = said["praised"] + said["blamed"] + said["neutral"]
    return Spoken(name, turns, said["praised"], said["blamed"], said["neutral"], said["rows"] if name in _RANKERS else 0)


def agreements(scored: Iterable[Sequence[Row]]) -> list[Agreement]:
    """Return the agreement of each judge with verifiers and users, and of each two judges, for trajectories and for turns.

    Args:
        scored: the scores of each trajectory, in stored order: rows of `scores` with turn, scorer, origin, value and success.
    """
    pairs: defaultdict[tuple[str, str, str], Signs] = defaultdict(Counter)
    for of_one in scored:
        ordered = sorted(of_one, key=lambda row: (-1 if row["turn"] is None else row["turn"], row["scorer"]))
        for turn, group in groupby(ordered, key=lambda row: row["turn"]):
            rows = list({row["scorer"]: row for row in group}.values())
            for judge, other, signs in _compared(rows):
                pairs[judge, other, "trajectory" if turn is None else "turn"][signs] += 1
    return [Agreement(*name, *_kappa(pairs[name])) for name in sorted(pairs)]


def _compared(rows: Sequence[Row]) -> Iterator[tuple[str, str, tuple[bool, bool]]]:
    """Yield a judge, somebody else and their signs, of the scores of one turn."""
    judges = [row for row in rows if row["origin"] == "judge" and row["value"] and row["scorer"] not in _RANKERS]
    for place, judge in enumerate(judges):
        for other in (row for row in rows if row["origin"] in PEOPLE_AND_CHECKS and _says(row) is not None):
            yield judge["scorer"], other["origin"], (judge["value"] > 0, bool(_says(other)))
        for other in judges[place + 1 :]:
            yield judge["scorer"], other["scorer"], (judge["value"] > 0, other["value"] > 0)


def _says(row: Row) -> bool | None:
    """Whether a score is good; None if it is neutral. A verifier's 0 is a failure."""
    if row.get("success") is not None:
        return bool(row["success"])
    return row["value"] > 0 if row["value"] or row["origin"] == "verifier" else None


def kappa_of(pairs: Sequence[tuple[bool, bool]]) -> tuple[int, float, float | None]:
    """Return the number of pairs, the share that agrees, and Cohen's kappa; None where one side always says the same."""
    return _kappa(Counter(pairs))


def _kappa(pairs: Signs) -> tuple[int, float, float | None]:
    n = pairs.total()
    agree = (pairs[True, True] + pairs[False, False]) / n
    mine, theirs = (pairs[True, True] + pairs[True, False]) / n, (pairs[True, True] + pairs[False, True]) / n
    chance = mine * theirs + (1 - mine) * (1 - theirs)
    constant = mine in (0, 1) or theirs in (0, 1)
    return n, agree, None if constant else (agree - chance) / (1 - chance)


def _judged(model: str, version: str, votes: Sequence[Vote], sample: int) -> Judged:
    by_turn: defaultdict[str, list[Vote]] = defaultdict(list)
    for vote in votes:
        by_turn[vote.subject].append(vote)
    values_by_turn = [[vote.value for vote in cast if vote.value is not None] for cast in by_turn.values()]
    several = [values for values in values_by_turn if len(values) > 1]
    first = [min(by_turn[subject], key=lambda vote: vote.number) for subject in sorted(by_turn)[:sample]]
    return Judged(
        model,
        version,
        votes=len(votes),
        turns=len(by_turn),
        malformed=sum(vote.value is None for vote in votes),
        agreement=fmean(map(_pairs_that_agree, several)) if several else None,
        unanimous=fmean(len(set(values)) == 1 for values in several) if several else None,
        values={value: sum(values.count(value) for values in values_by_turn) for value in (-1, 0, 1)},
        prompt_tokens=sum(vote.prompt_tokens for vote in votes),
        reply_tokens=sum(vote.reply_tokens for vote in votes),
        seconds=sum(vote.seconds for vote in votes),
        sample=first,
    )


def _pairs_that_agree(values: Sequence[int]) -> float:
    n = len(values)
    same = sum(values.count(value) * (values.count(value) - 1) for value in set(values))
    return same / (n * (n - 1))
