"""What is said of a row so far, by people, verifiers and judges, and how far that leaves its worth open."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import ClawpipeError, ConfigError
from clawpipe.play.judging.base import Prepares, Scorer

_COLUMNS = ["trajectory_id", "turn", "scorer", "origin", "value", "success", "reason", "evidence"]


@dataclass(frozen=True)
class Opinion:
    """One score of a row, or of a turn of it (`turn` is not None).

    Attributes:
        votes: of a judge that votes, what each vote said; None of one that could not be read.
    """

    scorer: str
    origin: str
    turn: int | None
    value: float
    success: bool | None
    reason: str
    votes: tuple[int | None, ...] = ()

    @property
    def side(self) -> float:
        """Where it stands between -1, a failure without doubt, and 1, a success without doubt."""
        votes = [vote for vote in self.votes if vote is not None]
        if votes:
            return fmean(votes)
        if self.success is not None:
            return 1.0 if self.success else -1.0
        return max(-1.0, min(1.0, self.value))


def uncertainty(opinions: Sequence[Opinion]) -> float:
    """Return how far the worth of a row is open, from 0 to 1: 1 less the distance of the opinions' mean from 0.

    It is 1 where nobody said anything, and where as much was said for a row as against it.
    """
    return 1.0 - abs(fmean(one.side for one in opinions)) if opinions else 1.0


def stored_opinions(store: Store, scores: Iterable[DatasetRef]) -> dict[str, list[Opinion]]:
    """Return the opinions in datasets of scores, by trajectory; of what two datasets hold of one turn by one scorer the later."""
    found: defaultdict[str, dict[tuple[str, int | None], Opinion]] = defaultdict(dict)
    for ref in scores:
        for row in read_dataset(store, ref, _COLUMNS).to_pylist():
            found[row["trajectory_id"]][row["scorer"], row["turn"]] = _opinion(row)
    return {name: _spoken(list(by_turn.values())) for name, by_turn in found.items()}


def said_by(scorers: Sequence[Scorer], rows: Sequence[Row]) -> dict[str, list[Opinion]]:
    """Let scorers score rows that nobody scored for a night yet; nothing is stored but the votes of judges.

    Raises:
        ConfigError: a scorer raised.
        BusyError: a judge does not answer, or its budget is spent.
    """
    try:
        for scorer in scorers:
            if isinstance(scorer, Prepares):
                scorer.prepare(rows)
        return {row["trajectory_id"]: _spoken([one for scorer in scorers for one in _said(scorer, row)]) for row in rows}
    except ClawpipeError:
        raise
    except Exception as error:  # a judge of the user's may raise anything
        what = " ".join(f"a judge raised {type(error).__name__}: {error}".split())
        raise ConfigError(what, "scorers", "docs/judges.md says what it is given and returns") from None


def _said(scorer: Scorer, row: Row) -> list[Opinion]:
    return [
        Opinion(scorer.name, scorer.origin, score.turn, score.value, score.success, score.reason, _votes(score.evidence))
        for score in scorer.score({}, row)
    ]


def _spoken(opinions: list[Opinion]) -> list[Opinion]:
    """Return the opinions without a judge's mean over turns that speak for themselves, those on the whole first."""
    by_turns = {one.scorer for one in opinions if one.turn is not None}
    kept = [one for one in opinions if one.turn is not None or one.scorer not in by_turns]
    return sorted(kept, key=lambda one: (one.turn is not None, one.turn or 0, one.scorer))


def _opinion(row: Row) -> Opinion:
    votes = _votes(json.loads(row["evidence"] or "{}"))
    return Opinion(row["scorer"], row["origin"], row["turn"], row["value"], row["success"], row["reason"] or "", votes)


def _votes(evidence: JsonObject) -> tuple[int | None, ...]:
    votes = evidence.get("votes")
    return tuple(vote.get("value") for vote in votes if isinstance(vote, Mapping)) if isinstance(votes, list) else ()
