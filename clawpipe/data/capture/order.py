"""The order in which records were written, whatever the clocks said."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from clawpipe.data.capture.records import Record


def in_written_order(located: Iterable[tuple[str, int, Record]]) -> list[Record]:
    """Return records in the order in which they were written.

    The lines of a segment, and the segments of a gateway, are in order. Gateways that wrote at the same time are merged by the time
    of their records. A clock that was set back was ahead before: a record counts as no later than those that were written after it.

    Args:
        located: name of the segment, number of the line, and record; in any order.
    """
    gateways: dict[str, list[tuple[str, int, Record]]] = {}
    for one in located:
        gateways.setdefault(_gateway(one[0]), []).append(one)
    streams = (_with_times([one[2] for one in sorted(lines, key=_place)]) for lines in gateways.values())
    return [record for _, record in heapq.merge(*streams, key=lambda one: one[0])]


def _gateway(segment: str) -> str:
    """Return folder and process of the gateway that wrote a segment: the last part of its name."""
    path = PurePath(segment)
    return str(path.with_name(path.stem.rpartition("-")[2]))


def _place(located: tuple[str, int, Record]) -> tuple[str, int]:
    return located[:2]


def _with_times(records: Sequence[Record]) -> Iterator[tuple[float, Record]]:
    """Yield records with the earliest time of all from there on."""
    times, earliest = list[float](), float("inf")
    for record in reversed(records):
        earliest = min(earliest, record.time)
        times.append(earliest)
    yield from zip(reversed(times), records, strict=True)
