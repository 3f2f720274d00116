"""Partitions: sets of row ranges that curation can filter independently of each other.

Most steps compare rows within a group only. So curation runs on one partition at a time, which fits into memory, and keeps the
result: a night over old datasets and a new one runs the steps on the new one alone. Two row ranges are in one partition if they
share a trajectory, a group or, for some methods, copies of a conversation, directly or through other ranges.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import accumulate

import duckdb

import clawpipe.data.curation
from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.curation import Curation
from clawpipe.core.config.methods import METHODS
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.duck import session
from clawpipe.core.store.refs import DatasetRef
from clawpipe.data.curation.row_ranges import ROWS, RowRange, measure_range, row_ranges_of, rows_inside

NAME = "cohorts"  # the kind of the notes that keep the result of a partition; a stored name
_SQL = resources.files(clawpipe.data.curation) / "sql"
_BEYOND = {  # or read tables about other rows
    *("12_review", "13_outcome_approved", "32_decontaminate_near", "45_near_duplicate", "47_policy_raters", "48_quotas"),
    *("68_sampling", "69_demonstrations", "69_episodes", "69_share", "69_weights"),
}
_SMALL = 4096  # rows: smaller partitions are joined, because each costs as much as ten thousand rows


@dataclass(frozen=True)
class ScoreFile:
    """A file of a dataset of scores, by its index."""

    scores: DatasetRef
    file: int


@dataclass(frozen=True)
class Partition:
    """Row ranges in the order of their datasets, and the files that hold their scores; at least one of each."""

    row_ranges: tuple[RowRange, ...]
    scores: tuple[ScoreFile, ...]

    def parents(self, items: DatasetRef) -> list[str]:
        """Return the digests of all inputs of its result."""
        inputs = (*(one.trajectories for one in self.row_ranges), *(one.scores for one in self.scores))
        return list(dict.fromkeys(ref.digest for ref in (*inputs, items)))


def stays_within_groups(config: Curation, method: str, active: Iterable[str]) -> bool:
    """Whether every step compares only rows of one partition, so that its result is still valid on the next night.

    Args:
        active: the steps that are not idle.
    """
    batch = "policy" in METHODS[method].families and (config.advantage == "batch" or config.turn_baseline is not None)
    return not batch and not config.needs_versions and _BEYOND.isdisjoint(active)  # each new version makes rows older


def whole_partition(
    store: Store, trajectories: Sequence[DatasetRef], measures: Sequence[DatasetRef], scores: Sequence[DatasetRef]
) -> Partition:
    """Return one partition of all rows."""
    row_ranges = tuple(RowRange(*pair) for pair in zip(trajectories, measures, strict=True))
    return Partition(row_ranges, tuple(ScoreFile(ref, file) for ref in scores for file in range(len(dataset_files(store, ref)))))


def partitions(
    store: Store, whole: Partition, method: str, threads: int | None = None, memory: str | None = None
) -> list[Partition]:
    """Return the partitions, in the order of their first row ranges.

    Raises:
        DataError: measures or scores are missing or damaged.
    """
    row_ranges = [part for row_range in whole.row_ranges for part in row_ranges_of(store, row_range)]
    if len(row_ranges) == 1:
        return [whole]
    measure_ranges, scores = [measure_range(store, row_range) for row_range in row_ranges], score_paths(store, whole.scores)
    files = [file for one in measure_ranges for file in one.files]
    parameters = {"measures": files} | rows_inside(measure_ranges, "row_ranges", range(len(row_ranges)))
    with session(store, [*files, *scores], threads, memory, ordered=False) as duck:
        first = _first_of(len(row_ranges), _ask(duck, "partitions", parameters | {"copies": METHODS[method].copies}))
        scored = _ask(duck, "partition_scores", parameters | {"scores": scores})
    return _grouped(whole, row_ranges, _with_small_ones(first, [one.rows for one in row_ranges]), scored)


def _with_small_ones(first: Sequence[int], rows: Sequence[int]) -> list[int]:
    """Join small partitions in order to larger ones, so that only the last can grow."""
    sizes = Counter[int]()
    for name, size in zip(first, rows, strict=True):
        sizes[name] += size
    small = [name for name in sizes if sizes[name] < _SMALL]
    before = accumulate((sizes[name] for name in small), initial=0)
    places = {name: rows_before // ROWS for name, rows_before in zip(small, before, strict=False)}
    into = {place: name for name, place in reversed(places.items())}
    return [into[places[name]] if name in places else name for name in first]


def _grouped(
    whole: Partition, row_ranges: Sequence[RowRange], first: Sequence[int], scored: Iterable[tuple[int, int]]
) -> list[Partition]:
    """Group the row ranges by the first one of each partition, with the files that score them; without any, the first file."""
    members, files = defaultdict[int, list[RowRange]](list), defaultdict[int, set[int]](set)
    for name, row_range in zip(first, row_ranges, strict=True):
        members[name].append(row_range)
    for place, file in scored:
        files[first[place]].add(file)
    return [
        Partition(tuple(ranges), tuple(whole.scores[file] for file in sorted(files[name] or {0})))
        for name, ranges in members.items()
    ]


def _ask(duck: duckdb.DuckDBPyConnection, name: str, parameters: Options) -> list[tuple[int, int]]:
    return duck.execute((_SQL / f"{name}.sql").read_text(encoding="utf-8"), parameters).fetchall()


def score_paths(store: Store, scores: Sequence[ScoreFile]) -> list[str]:
    refs = {one.scores.digest: one.scores for one in scores}
    files = {digest: dataset_files(store, ref) for digest, ref in refs.items()}
    return [str(files[one.scores.digest][one.file]) for one in scores]


def _first_of(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return for each index the lowest index that it is connected to, directly or through others."""
    first = list(range(count))
    for one, other in pairs:
        joined, into = max(first[one], first[other]), min(first[one], first[other])
        if joined != into:
            first = [into if name == joined else name for name in first]
    return first
