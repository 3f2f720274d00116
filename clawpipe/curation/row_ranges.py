"""Stretches of a dataset's rows: a large dataset is cut where a group ends, so that it can be decided about piece by piece."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import pyarrow.parquet as pq

from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files
from clawpipe.store.refs import DatasetRef

ROWS = 1_000_000  # of a stretch, about: the narrow tables of so many fit into 512 MB
_END = 1 << 62


@dataclass(frozen=True)
class Cut:
    """A place between two rows of a dataset."""

    row: int  # of the dataset, from 0: the first one behind it
    file: int  # of the measures, and the row in that file
    within: int
    before: int  # file of the trajectories that holds the row before, and that of the row behind
    behind: int


@dataclass(frozen=True)
class Stretch:
    """Rows of a dataset, and their measures; from its start or a cut up to its end or a cut."""

    trajectories: DatasetRef
    measures: DatasetRef
    begin: Cut | None = None
    end: Cut | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        """The first row, and the first one that is no part of it."""
        return self.begin.row if self.begin else 0, self.end.row if self.end else self.trajectories.rows

    @property
    def rows(self) -> int:
        first, end = self.bounds
        return end - first


@dataclass(frozen=True)
class Window:
    """The files of measures that a stretch lies in, and which rows of each of them are its own."""

    files: tuple[str, ...]
    first_rows: tuple[int, ...]
    end_rows: tuple[int, ...]


@dataclass(frozen=True)
class Payload:
    """The files of trajectories that a stretch lies in, and how many of its dataset come before those."""

    files: tuple[str, ...]
    skipped: int


def stretches_of(store: Store, stretch: Stretch) -> list[Stretch]:
    """Stretches of some ROWS rows, all of about one length; longer ones where no group ends.

    Args:
        stretch: a whole dataset.
    """
    rows, count = stretch.trajectories.rows, round(stretch.trajectories.rows / ROWS)
    targets = [rows * number // count for number in range(1, count)]
    cuts = _cuts(dataset_files(store, stretch.measures), targets) if targets else []
    bounds = [None, *cuts, None]
    return [Stretch(stretch.trajectories, stretch.measures, *pair) for pair in pairwise(bounds)]


def window(store: Store, stretch: Stretch) -> Window:
    """Where its measures are."""
    files = dataset_files(store, stretch.measures)
    first = stretch.begin.file if stretch.begin else 0
    files = files[first : stretch.end.file + 1 if stretch.end else None]
    return Window(
        files=tuple(map(str, files)),
        first_rows=(stretch.begin.within if stretch.begin else 0, *[0] * (len(files) - 1)),
        end_rows=(*[_END] * (len(files) - 1), stretch.end.within if stretch.end else _END),
    )


def own_rows(windows: Sequence[Window], name: str, values: Sequence[int]) -> dict[str, list[int]]:
    """What a statement is told of the rows of each file of measures, and one value of its stretch by a name."""
    return {
        "first_rows": [row for one in windows for row in one.first_rows],
        "end_rows": [row for one in windows for row in one.end_rows],
        name: [value for one, value in zip(windows, values, strict=True) for _ in one.files],
    }


def payload(store: Store, stretch: Stretch) -> Payload:
    """Where its trajectories are."""
    skipped = stretch.begin.behind if stretch.begin else 0
    files = dataset_files(store, stretch.trajectories)[skipped : stretch.end.before + 1 if stretch.end else None]
    return Payload(tuple(map(str, files)), skipped)


def _cuts(measures: Sequence[Path], targets: Sequence[int]) -> list[Cut]:
    starts = [0, *accumulate(pq.read_metadata(file).num_rows for file in measures)]
    found = (_cut(measures, starts, target) for target in targets)
    return sorted({cut for cut in found if cut}, key=lambda cut: cut.row)


def _cut(measures: Sequence[Path], starts: Sequence[int], target: int) -> Cut | None:
    """The first cut from a row on, if there is one in the same file of measures."""
    file = bisect_right(starts, target) - 1
    table = pq.read_table(measures[file], columns=["group_id", "file"])
    groups, files = table["group_id"].to_numpy(), table["file"]
    earliest = max(target - starts[file], 1)
    [ends] = (groups[earliest:] != groups[earliest - 1 : -1]).nonzero()
    if not len(ends):
        return None
    within = earliest + int(ends[0])
    return Cut(starts[file] + within, file, within, files[within - 1].as_py(), files[within].as_py())
