"""Cohorts: rows that no step of curation has to look at with others. What was decided about one holds whatever is beside it.

Most steps compare rows of one group at most. So datasets are decided about one by one, and large ones a run of rows after another,
which fits into memory; what it came to is kept, and a night over old datasets and a new one decides about the new one alone. Two
runs are of one cohort if they have a trajectory, a group, or what the method takes for copies in common, directly or by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

import duckdb

import clawpipe.curation
from clawpipe.config.curation import Curation
from clawpipe.curation.runs import Run, runs_of, window
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files
from clawpipe.store.duck import session
from clawpipe.store.refs import DatasetRef

NAME = "cohorts"  # kind of the notes of what was decided about one
_SQL = resources.files(clawpipe.curation) / "sql"
_COPIES = {"sft": "conversation", "dpo": None}  # and of the others draws; a group's own copies need no key


@dataclass(frozen=True)
class ScoreFile:
    """A file of a dataset of scores, by its place."""

    scores: DatasetRef
    file: int


@dataclass(frozen=True)
class Cohort:
    """Runs in the order in which their datasets were given, and the files that hold scores of theirs; at least one of each."""

    runs: tuple[Run, ...]
    scores: tuple[ScoreFile, ...]


def stays_within_groups(config: Curation, method: str, active: Iterable[str]) -> bool:
    """Whether no step compares more than the rows of one cohort.

    Args:
        active: the steps of which something is asked.
    """
    beyond = {"32_decontaminate_near", "45_near_duplicate", "48_quotas", "68_sampling", "69_share"}  # or reads what others found
    batch = method in ("grpo", "opd", "combine") and (config.advantage == "batch" or config.turn_baseline is not None)
    return not batch and beyond.isdisjoint(active)


def one_cohort(
    store: Store, trajectories: Sequence[DatasetRef], measures: Sequence[DatasetRef], scores: Sequence[DatasetRef]
) -> Cohort:
    """Everything together."""
    runs = tuple(Run(*pair) for pair in zip(trajectories, measures, strict=True))
    return Cohort(runs, tuple(ScoreFile(ref, file) for ref in scores for file in range(len(dataset_files(store, ref)))))


def cohorts(store: Store, whole: Cohort, method: str, threads: int | None = None, memory: str | None = None) -> list[Cohort]:
    """The cohorts, in the order of their first runs.

    Raises:
        DataError: measures or scores are missing or damaged.
    """
    runs = [part for run in whole.runs for part in runs_of(store, run)]
    if len(runs) == 1:
        return [whole]
    measures, scores = [window(store, run) for run in runs], score_paths(store, whole.scores)
    files = [file for one in measures for file in one.measures]
    told = {
        "measures": files,
        "runs": [place for place, one in enumerate(measures) for _ in one.measures],
        "first_rows": [row for one in measures for row in one.first_rows],
        "end_rows": [row for one in measures for row in one.end_rows],
    }
    with session(store, [*files, *scores], threads, memory, ordered=False) as duck:
        first = _first_of(len(runs), _ask(duck, "cohorts", told | {"copies": _COPIES.get(method, "draw")}))
        scored = _ask(duck, "cohort_scores", told | {"scores": scores})
    return [_cohort(whole, runs, first, scored, name) for name in dict.fromkeys(first)]


def _cohort(whole: Cohort, runs: Sequence[Run], first: Sequence[int], scored: Sequence[tuple[int, int]], name: int) -> Cohort:
    """Of the runs those of a name, and the files of scores that belong to them; one that has none is told so by the first."""
    files = sorted({file for run, file in scored if first[run] == name}) or [0]
    return Cohort(
        tuple(run for run, its in zip(runs, first, strict=True) if its == name), tuple(whole.scores[file] for file in files)
    )


def _ask(duck: duckdb.DuckDBPyConnection, name: str, told: dict) -> list[tuple[int, int]]:
    return duck.execute((_SQL / f"{name}.sql").read_text(encoding="utf-8"), told).fetchall()


def score_paths(store: Store, scores: Iterable[ScoreFile]) -> list[str]:
    return [str(dataset_files(store, one.scores)[one.file]) for one in scores]


def _first_of(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """For each place the least one that it is joined to, directly or by others in between."""
    first = list(range(count))
    for one, other in pairs:
        joined, into = max(first[one], first[other]), min(first[one], first[other])
        first = [into if name == joined else name for name in first]
    return first
