"""Cut large datasets into row ranges, each of which ends where a group ends."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import pyarrow.parquet as pq

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.refs import DatasetRef

ROWS = 1_000_000  # approximate length of a row range: its narrow tables fit into 512 MB
_END = 1 << 62


@dataclass(frozen=True)
class Boundary:
    """A place between two rows of a dataset."""

    row: int  # index in the dataset of the first row after it
    file: int  # index of the file of measures, and of the row in that file
    within: int
    before: int  # index of the trajectories' file with the row before, and of the one with the row after
    behind: int


@dataclass(frozen=True)
class RowRange:
    """A range of rows of a dataset with their measures; `begin` and `end` are None at the ends of the dataset."""

    trajectories: DatasetRef
    measures: DatasetRef
    begin: Boundary | None = None
    end: Boundary | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        """The index of the first row, and of the first row after the range."""
        return self.begin.row if self.begin else 0, self.end.row if self.end else self.trajectories.rows

    @property
    def rows(self) -> int:
        first, end = self.bounds
        return end - first


@dataclass(frozen=True)
class MeasureRange:
    """The files of measures that hold a row range, with the first row and the end row in each."""

    files: tuple[str, ...]
    first_rows: tuple[int, ...]
    end_rows: tuple[int, ...]


@dataclass(frozen=True)
class Payload:
    """The files of trajectories that hold a row range, and the number of files before them."""

    files: tuple[str, ...]
    skipped: int


def row_ranges_of(store: Store, row_range: RowRange) -> list[RowRange]:
    """Cut a whole dataset into row ranges of about ROWS rows; they are longer where no group ends."""
    rows, count = row_range.trajectories.rows, round(row_range.trajectories.rows / ROWS)
    targets = [rows * number // count for number in range(1, count)]
    boundaries = _boundaries(dataset_files(store, row_range.measures), targets) if targets else []
    bounds = [None, *boundaries, None]
    return [RowRange(row_range.trajectories, row_range.measures, *pair) for pair in pairwise(bounds)]


def measure_range(store: Store, row_range: RowRange) -> MeasureRange:
    """Return the files with the measures of a row range."""
    files = dataset_files(store, row_range.measures)
    first = row_range.begin.file if row_range.begin else 0
    files = files[first : row_range.end.file + 1 if row_range.end else None]
    return MeasureRange(
        files=tuple(map(str, files)),
        first_rows=(row_range.begin.within if row_range.begin else 0, *[0] * (len(files) - 1)),
        end_rows=(*[_END] * (len(files) - 1), row_range.end.within if row_range.end else _END),
    )


def rows_inside(measure_ranges: Sequence[MeasureRange], name: str, values: Sequence[int]) -> dict[str, list[int]]:
    """Return the SQL parameters for files of measures: the rows of each, and under `name` the value of its row range."""
    return {
        "first_rows": [row for one in measure_ranges for row in one.first_rows],
        "end_rows": [row for one in measure_ranges for row in one.end_rows],
        name: [value for one, value in zip(measure_ranges, values, strict=True) for _ in one.files],
    }


def payload(store: Store, row_range: RowRange) -> Payload:
    """Return the files with the trajectories of a row range."""
    skipped = row_range.begin.behind if row_range.begin else 0
    files = dataset_files(store, row_range.trajectories)[skipped : row_range.end.before + 1 if row_range.end else None]
    return Payload(tuple(map(str, files)), skipped)


def _boundaries(measures: Sequence[Path], targets: Sequence[int]) -> list[Boundary]:
    starts = [0, *accumulate(pq.read_metadata(file).num_rows for file in measures)]
    found = (_boundary(measures, starts, target) for target in targets)
    return sorted({boundary for boundary in found if boundary}, key=lambda boundary: boundary.row)


def _boundary(measures: Sequence[Path], starts: Sequence[int], target: int) -> Boundary | None:
    """Return the first boundary from the row `target` on; None if its file of measures has none."""
    file = bisect_right(starts, target) - 1
    table = pq.read_table(measures[file], columns=["group_id", "file"])
    groups, files = table["group_id"].to_numpy(), table["file"]
    earliest = max(target - starts[file], 1)
    [ends] = (groups[earliest:] != groups[earliest - 1 : -1]).nonzero()
    if not len(ends):
        return None
    within = earliest + int(ends[0])
    return Boundary(starts[file] + within, file, within, files[within - 1].as_py(), files[within].as_py())
