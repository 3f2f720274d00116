"""Rows to train on: one of them, and many that lie in a temporary file: as Python objects they would take tens of gigabytes."""

from __future__ import annotations

import os
import struct
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from tempfile import TemporaryFile
from typing import IO, NamedTuple, overload

import numpy as np

_HEAD = struct.Struct("=qqqdd?")  # of a record: its layout, T, N, temperature, weight, imitated
_BUFFER = 1 << 20


@dataclass(frozen=True)
class Sample:
    """One row. `trained` lists the N positions of `token_ids` that carry loss, in order, never position 0.

    `streams` are parallel to the trained tokens, [N] or [N, K], by name; log-probs are in nats at `temperature`. Every row
    of a batch has the same streams. clawpipe.learn.training.losses.policy says which a loss reads.
    """

    group: str
    token_ids: np.ndarray  # int [T]
    trained: np.ndarray  # int [N]
    temperature: float
    weight: float
    streams: Mapping[str, np.ndarray]
    imitated: bool = False  # no policy sampled it, although the loss takes ratios


class _Layout(NamedTuple):
    """The types of a record's arrays: token_ids, trained, and each stream with its shape behind [N]."""

    token_ids: np.dtype
    trained: np.dtype
    streams: tuple[tuple[str, np.dtype, tuple[int, ...]], ...]

    @classmethod
    def of(cls, row: Sample) -> _Layout:
        streams = tuple((name, values.dtype, values.shape[1:]) for name, values in row.streams.items())
        return cls(row.token_ids.dtype, row.trained.dtype, streams)


class _Records:
    """A temporary file with a record for each row; in memory are where each begins, and its group."""

    def __init__(self) -> None:
        self._file: IO[bytes] = TemporaryFile(buffering=_BUFFER)  # noqa: SIM115  # open as long as its rows are there
        weakref.finalize(self, self._file.close)
        self._starts, self.groups = array("q", [0]), array("i")
        self._layouts: dict[_Layout, int] = {}
        self._codes: dict[str, int] = {}
        self.any_imitated = False

    def add(self, row: Sample) -> None:
        layout = self._layouts.setdefault(_Layout.of(row), len(self._layouts))
        head = _HEAD.pack(layout, len(row.token_ids), len(row.trained), row.temperature, row.weight, row.imitated)
        parts = [head, *(np.ascontiguousarray(part).tobytes() for part in (row.token_ids, row.trained, *row.streams.values()))]
        self._starts.append(self._starts[-1] + sum(map(self._file.write, parts)))
        self.groups.append(self._codes.setdefault(row.group, len(self._codes)))
        self.any_imitated |= row.imitated

    def close(self) -> None:
        """Write what is left; nothing is added from now on."""
        self._file.flush()
        self.names, self._known = list(self._codes), list(self._layouts)

    def read(self, place: int) -> Sample:
        start, size = self._starts[place], self._starts[place + 1] - self._starts[place]
        data = bytearray(size)
        if os.preadv(self._file.fileno(), [data], start) != size:
            raise OSError("the temporary file of the rows was cut off")
        number, tokens, trained, temperature, weight, imitated = _HEAD.unpack_from(data)
        layout, place_in = self._known[number], _HEAD.size

        def take(kind: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
            nonlocal place_in
            count = int(np.prod(shape))
            found = np.frombuffer(data, kind, count, place_in).reshape(shape)
            place_in += found.nbytes
            return found

        ids, positions = take(layout.token_ids, (tokens,)), take(layout.trained, (trained,))
        streams = {name: take(kind, (trained, *shape)) for name, kind, shape in layout.streams}
        return Sample(self.names[self.groups[place]], ids, positions, temperature, weight, streams, imitated)

    def __len__(self) -> int:
        return len(self.groups)


class StoredRows(Sequence[Sample]):
    """Rows in a temporary file, each of which is read when it is asked for; a slice is of the same file.

    If some of them are imitated, each has the stream `imitated`, bool [N].
    """

    def __init__(self, records: _Records, places: Sequence[int]) -> None:
        self._records, self._places = records, places

    @classmethod
    def of(cls, rows: Iterable[Sample]) -> StoredRows:
        records = _Records()
        for row in rows:
            records.add(row)
        records.close()
        return cls(records, range(len(records)))

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> StoredRows: ...
    def __getitem__(self, index: int | slice) -> Sample | StoredRows:
        if isinstance(index, slice):
            return StoredRows(self._records, self._places[index])
        row = self._records.read(self._places[index])
        return with_imitated(row) if self._records.any_imitated else row

    def __len__(self) -> int:
        return len(self._places)

    def groups(self) -> Iterator[str]:
        """Yield the group of each row, without reading the rows."""
        return (self._records.names[self._records.groups[place]] for place in self._places)

    def where(self, keep: Callable[[str], bool]) -> StoredRows:
        """Return the rows whose group `keep` says to keep."""
        kept = array("q", (place for place, group in zip(self._places, self.groups(), strict=True) if keep(group)))
        return StoredRows(self._records, kept)


def with_imitated(row: Sample) -> Sample:
    """Return a row with the stream `imitated`."""
    return replace(row, streams={**row.streams, "imitated": np.full(len(row.trained), row.imitated)})


def groups_of(rows: Sequence[Sample]) -> Iterator[str]:
    """Yield the group of each row."""
    return rows.groups() if isinstance(rows, StoredRows) else (row.group for row in rows)


def of_groups(rows: Sequence[Sample], keep: Callable[[str], bool]) -> Sequence[Sample]:
    """Return the rows whose group `keep` says to keep, in order."""
    return rows.where(keep) if isinstance(rows, StoredRows) else [row for row in rows if keep(row.group)]
