"""What scores say of held-out conversations: only those with good replies are evidence."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import NamedTuple

import pyarrow as pa

from clawpipe.core.basics.json_types import Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_batches
from clawpipe.core.store.refs import DatasetRef

UNJUDGED = "no verifier score"  # as curation says it
_NEAREST = ("verifier", "user", "custom", "judge")  # to what was done, as in curation's 10_join.sql
_OF_TURN = ("user", "custom", "verifier", "judge")  # the same of a turn's scores
_AGAIN = re.compile("(imported/capture/user)/([0-9]+)")  # names of feedback on a captured turn, from the second time on
_SCORE = ["trajectory_id", "turn", "scorer", "origin", "value", "success"]


@dataclass(frozen=True)
class SaidOf:
    """The scores of some conversations. They are read again for each question: all of a night's are too many to keep."""

    store: Store
    datasets: Sequence[DatasetRef]
    names: Collection[str]

    def rows(self) -> Iterator[Row]:
        """Yield the rows of `scores` in stored order."""
        for ref in self.datasets:
            for batch in dataset_batches(self.store, ref, _SCORE):
                mine = [name in self.names for name in batch["trajectory_id"].to_pylist()]
                yield from batch.filter(pa.array(mine, pa.bool_())).to_pylist()

    def successes(self, signs: bool = False) -> dict[str, bool]:
        """Return for each judged conversation whether its replies are good: by those nearest to it who speak of the whole, all of
        them (verifiers, users, others, judges); where nobody does, by its turns, as in curation: good if one was praised.

        Args:
            signs: whether a number that does not say success speaks by its sign; a judge's does not.
        """
        judged: dict[str, tuple[int, bool]] = {}
        for row in self.rows():
            success = _success(row, signs)
            if row["turn"] is None and success is not None:
                judgement = (_NEAREST.index(row["origin"]), success)
                judged[row["trajectory_id"]] = min(judgement, judged.get(row["trajectory_id"], judgement))
        return self._praised() | {name: success for name, (_, success) in judged.items()}

    def scores(self) -> dict[str, float]:
        """Return the score of each conversation as a whole: of several the same one as in curation's 10_join.sql."""
        found: dict[str, tuple[int, str, float]] = {}
        for row in self.rows():
            if row["turn"] is None:
                score = (_NEAREST.index(row["origin"]), intern(row["scorer"]), row["value"])
                found[row["trajectory_id"]] = min(score, found.get(row["trajectory_id"], score))
        return {name: value for name, (*_, value) in found.items()}

    def _praised(self) -> dict[str, bool]:
        """Return for each conversation with a praised or blamed turn whether one was praised. The sign of a judge's numbers says
        nothing where its score of the whole does not say success."""
        unsigned = {
            (row["trajectory_id"], row["scorer"])
            for row in self.rows()
            if row["turn"] is None and row["success"] is None and row["value"] and row["origin"] == "judge"
        }
        said: dict[tuple[str, int], tuple[int, str, int, float]] = {}  # of each turn what counts
        for row in self.rows():
            if row["turn"] is not None and (row["trajectory_id"], row["scorer"]) not in unsigned:
                turn, counts = (row["trajectory_id"], row["turn"]), _counts(row)
                said[turn] = min(said.get(turn, counts), counts)
        praised: dict[str, bool] = {}
        for (name, _), (*_, value) in said.items():
            if value:
                praised[name] = praised.get(name, False) or value > 0
        return praised


class Range(NamedTuple):
    """Which scores of the whole a conversation may have: the least and the greatest; empty: any."""

    limits: Sequence[float | None]
    scores: Mapping[str, float]

    def fault(self, name: str) -> str:
        """Return why a conversation is no evidence, as curation says it; "" if its score is one that is trained on."""
        if not self.limits:
            return ""
        (least, most), score = self.limits, self.scores.get(name)
        if score is None:
            return UNJUDGED
        return "score out of range" if (least is not None and score < least) or (most is not None and score > most) else ""


def _success(row: Row, signs: bool) -> bool | None:
    if row["success"] is None and signs and row["origin"] != "judge" and row["value"]:
        return row["value"] > 0
    return row["success"]


def _counts(row: Row) -> tuple[int, str, int, float]:
    """Order what is said of a turn as curation's 10_join.sql does: the one nearest to a person counts, and of feedback that was
    given again, under numbered names, the last word."""
    found = _AGAIN.fullmatch(row["scorer"])
    name, times = (found[1], int(found[2])) if found else (row["scorer"], 1)
    return _OF_TURN.index(row["origin"]), intern(name), -times, row["value"]
