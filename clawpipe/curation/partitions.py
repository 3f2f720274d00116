"""Cohorts: rows that no step of curation has to look at with others. What was decided about one holds whatever is beside it.

Most steps compare rows of one group at most. So datasets are decided about one by one, and large ones a stretch of rows after the
other, which fits into memory; what it came to is kept, and a night over old datasets and a new one decides about the new one alone.
Two stretches are of one cohort if they have a trajectory, a group, or what the method takes for copies in common, directly or by
others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import accumulate

import duckdb

import clawpipe.curation
from clawpipe.config.curation import Curation
from clawpipe.config.methods import METHODS
from clawpipe.curation.row_ranges import ROWS, Stretch, own_rows, stretches_of, window
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files
from clawpipe.store.duck import session
from clawpipe.store.refs import DatasetRef

NAME = "cohorts"  # kind of the notes of what was decided about one
_SQL = resources.files(clawpipe.curation) / "sql"
_BEYOND = {"32_decontaminate_near", "45_near_duplicate", "48_quotas", "68_sampling", "69_share"}  # or reads what others found
# What a method takes for copies: of the others draws. dpo looks for copies within a group.
_COPIES = {"sft": "conversation", "dpo": None}
_SMALL = 4096  # rows: to decide about a cohort costs as much as ten thousand rows of one do, so those with fewer go together


@dataclass(frozen=True)
class ScoreFile:
    """A file of a dataset of scores, by its place."""

    scores: DatasetRef
    file: int


@dataclass(frozen=True)
class Cohort:
    """Stretches in the order in which their datasets were given, and the files that hold scores of theirs; at least one of each."""

    stretches: tuple[Stretch, ...]
    scores: tuple[ScoreFile, ...]

    def parents(self, items: DatasetRef) -> list[str]:
        """Digests of everything that its result is made of."""
        its = (*(one.trajectories for one in self.stretches), *(one.scores for one in self.scores))
        return list(dict.fromkeys(ref.digest for ref in (*its, items)))


def stays_within_groups(config: Curation, method: str, active: Iterable[str]) -> bool:
    """Whether no step compares more than the rows of one cohort, and what it decides holds on the next night.

    Args:
        active: the steps of which something is asked.
    """
    batch = "policy" in METHODS[method].families and (config.advantage == "batch" or config.turn_baseline is not None)
    return not batch and not config.needs_versions and _BEYOND.isdisjoint(active)  # with each new version rows are a step older


def one_cohort(
    store: Store, trajectories: Sequence[DatasetRef], measures: Sequence[DatasetRef], scores: Sequence[DatasetRef]
) -> Cohort:
    """Everything together."""
    stretches = tuple(Stretch(*pair) for pair in zip(trajectories, measures, strict=True))
    return Cohort(stretches, tuple(ScoreFile(ref, file) for ref in scores for file in range(len(dataset_files(store, ref)))))


def cohorts(store: Store, whole: Cohort, method: str, threads: int | None = None, memory: str | None = None) -> list[Cohort]:
    """The cohorts, in the order of their first stretches.

    Raises:
        DataError: measures or scores are missing or damaged.
    """
    stretches = [part for stretch in whole.stretches for part in stretches_of(store, stretch)]
    if len(stretches) == 1:
        return [whole]
    windows, scores = [window(store, stretch) for stretch in stretches], score_paths(store, whole.scores)
    files = [file for one in windows for file in one.files]
    told = {"measures": files} | own_rows(windows, "stretches", range(len(stretches)))
    with session(store, [*files, *scores], threads, memory, ordered=False) as duck:
        first = _first_of(len(stretches), _ask(duck, "cohorts", told | {"copies": _COPIES.get(method, "draw")}))
        scored = _ask(duck, "cohort_scores", told | {"scores": scores})
    return _dealt(whole, stretches, _with_small_ones(first, [one.rows for one in stretches]), scored)


def _with_small_ones(first: Sequence[int], rows: Sequence[int]) -> list[int]:
    """Small cohorts in their order put together to larger ones, of which only the last can grow."""
    sizes = Counter[int]()
    for name, size in zip(first, rows, strict=True):
        sizes[name] += size
    small = [name for name in sizes if sizes[name] < _SMALL]
    before = accumulate((sizes[name] for name in small), initial=0)
    places = {name: rows_before // ROWS for name, rows_before in zip(small, before, strict=False)}
    into = {place: name for name, place in reversed(places.items())}
    return [into[places[name]] if name in places else name for name in first]


def _dealt(whole: Cohort, stretches: Sequence[Stretch], first: Sequence[int], scored: Iterable[tuple[int, int]]) -> list[Cohort]:
    """Stretches by the first one that each is joined to, with the files that score them; where none does, the first says so."""
    members, files = defaultdict[int, list[Stretch]](list), defaultdict[int, set[int]](set)
    for name, stretch in zip(first, stretches, strict=True):
        members[name].append(stretch)
    for place, file in scored:
        files[first[place]].add(file)
    return [Cohort(tuple(its), tuple(whole.scores[file] for file in sorted(files[name] or {0}))) for name, its in members.items()]


def _ask(duck: duckdb.DuckDBPyConnection, name: str, told: dict) -> list[tuple[int, int]]:
    return duck.execute((_SQL / f"{name}.sql").read_text(encoding="utf-8"), told).fetchall()


def score_paths(store: Store, scores: Sequence[ScoreFile]) -> list[str]:
    refs = {one.scores.digest: one.scores for one in scores}
    files = {digest: dataset_files(store, ref) for digest, ref in refs.items()}
    return [str(files[one.scores.digest][one.file]) for one in scores]


def _first_of(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """For each place the least one that it is joined to, directly or by others in between."""
    first = list(range(count))
    for one, other in pairs:
        joined, into = max(first[one], first[other]), min(first[one], first[other])
        if joined != into:
            first = [into if name == joined else name for name in first]
    return first
