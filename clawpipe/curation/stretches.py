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


@dataclass(frozen=True)
class Window:
    """The files that a stretch lies in, which may hold other rows as well."""

    measures: tuple[str, ...]
    first_rows: tuple[int, ...]  # of the stretch in each of these
    end_rows: tuple[int, ...]
    trajectories: tuple[str, ...]
    skipped: int  # files of trajectories before those


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
    """Where its rows are."""
    measures, trajectories = dataset_files(store, stretch.measures), dataset_files(store, stretch.trajectories)
    first, skipped = (stretch.begin.file, stretch.begin.behind) if stretch.begin else (0, 0)
    last, behind = (stretch.end.file, stretch.end.before + 1) if stretch.end else (len(measures) - 1, len(trajectories))
    count = last - first + 1
    return Window(
        measures=tuple(map(str, measures[first : last + 1])),
        first_rows=(stretch.begin.within if stretch.begin else 0, *[0] * (count - 1)),
        end_rows=(*[_END] * (count - 1), stretch.end.within if stretch.end else _END),
        trajectories=tuple(map(str, trajectories[skipped:behind])),
        skipped=skipped,
    )


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
