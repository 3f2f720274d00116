"""Cohorts: datasets that no step of curation has to look at together. What was decided about one holds whatever there is beside it.

Most of a night's data were there the night before, and most steps compare rows of one group at most. So what curation came to is
kept by cohort, and a night over old datasets and a new one decides about the new one alone. Two datasets are of one cohort if they
have a trajectory, a group, or what the method takes for copies in common, or if one holds scores of the other's trajectories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

import clawpipe.curation
from clawpipe.config.curation import Curation
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files
from clawpipe.store.duck import session
from clawpipe.store.refs import DatasetRef

NAME = "cohorts"  # kind of the notes of what was decided about one
_SQL = resources.files(clawpipe.curation) / "sql" / "cohorts.sql"
_COPIES = {"sft": "conversation", "dpo": None}  # and of the others draws; a group's own copies need no key


@dataclass(frozen=True)
class Cohort:
    """Datasets in the order in which they were given."""

    trajectories: tuple[DatasetRef, ...]
    measures: tuple[DatasetRef, ...]  # of these trajectories
    scores: tuple[DatasetRef, ...]


def stays_within_groups(config: Curation, method: str, active: Iterable[str]) -> bool:
    """Whether no step compares more than the rows of one cohort.

    Args:
        active: the steps of which something is asked.
    """
    beyond = {"32_decontaminate_near", "45_near_duplicate", "48_quotas", "68_sampling", "69_share"}  # or reads what others found
    batch = method in ("grpo", "opd", "combine") and (config.advantage == "batch" or config.turn_baseline is not None)
    return not batch and beyond.isdisjoint(active)


def cohorts(store: Store, whole: Cohort, method: str, threads: int | None = None, memory: str | None = None) -> list[Cohort]:
    """The cohorts, in the order of their first trajectories. Scores of no trajectory are in none.

    Raises:
        DataError: measures or scores are missing or damaged.
    """
    if len(whole.trajectories) == 1:
        return [whole]
    first = _first_of(len(whole.trajectories) + len(whole.scores), _shared(store, whole, method, threads, memory))
    own, scores = first[: len(whole.trajectories)], first[len(whole.trajectories) :]
    return [
        Cohort(
            trajectories=_chosen(whole.trajectories, own, name),
            measures=_chosen(whole.measures, own, name),
            scores=_chosen(whole.scores, scores, name),
        )
        for name in dict.fromkeys(own)
    ]


def _chosen(refs: Sequence[DatasetRef], names: Sequence[int], name: int) -> tuple[DatasetRef, ...]:
    return tuple(ref for ref, its in zip(refs, names, strict=True) if its == name)


def _shared(store: Store, whole: Cohort, method: str, threads: int | None, memory: str | None) -> list[tuple[int, int]]:
    """Places of datasets that belong together: of trajectories from 0, then of scores."""
    measures, places = _files(store, whole.measures, 0)
    scores, score_places = _files(store, whole.scores, len(whole.trajectories))
    told = {"measures": measures, "places": places, "scores": scores, "score_places": score_places}
    with session(store, [*measures, *scores], threads, memory, ordered=False) as duck:
        statement = _SQL.read_text(encoding="utf-8")
        return duck.execute(statement, told | {"copies": _COPIES.get(method, "draw")}).fetchall()


def _files(store: Store, refs: Sequence[DatasetRef], first: int) -> tuple[list[str], list[int]]:
    """Files, and for each the place of its dataset."""
    found = [(str(file), place) for place, ref in enumerate(refs, first) for file in dataset_files(store, ref)]
    return [file for file, _ in found], [place for _, place in found]


def _first_of(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """For each place the least one that it is joined to, directly or by others in between."""
    first = list(range(count))
    for one, other in pairs:
        joined, into = max(first[one], first[other]), min(first[one], first[other])
        first = [into if name == joined else name for name in first]
    return first
