"""Check a file or dataset against a contract without writing it: report every reason, its count and its first places."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.contracts.odcs import EXTRA, Contract, Property, contract_names, load_contract
from clawpipe.core.contracts.schema import arrow_schema, file_schema, layout_of
from clawpipe.core.contracts.validate import with_extra
from clawpipe.core.contracts.violations import create_violation_tables
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import write_parquet
from clawpipe.core.store.duck import session
from clawpipe.core.store.parts import PART_ROWS

_F32, _F64 = 3.4028234663852886e38, 1.7976931348623157e308
_RANGES: dict[tuple[str, type], tuple[float, float]] = {  # for floating columns: the integers that they hold exactly
    ("i32", int): (-(2**31), 2**31 - 1),
    ("i64", int): (-(2**63), 2**63 - 1),
    ("f32", int): (-(2**24), 2**24),
    ("f64", int): (-(2**53), 2**53),
    ("f32", float): (-_F32, _F32),
    ("f64", float): (-_F64, _F64),
}
_FIRST = 3  # places reported for each reason
Record = tuple[str, "Mapping[str, Any] | str"]  # the place of a line, and its JSON object or the reason why it has none


class Typed(NamedTuple):
    """A record as a row of its contract: `row` has null in each of the `wrong` columns, and `reasons` holds the reasons."""

    row: Row
    wrong: tuple[str, ...]
    reasons: tuple[str, ...]
    carried: tuple[str, ...]
    discarded: tuple[str, ...]


def typed(record: Mapping[str, Any], contract: Contract) -> Typed:
    """Convert a record to a row; values of a wrong type and fields without a column are treated by the contract's mode."""
    columns = {column.name: column for column in contract.columns}
    faults = {name: tuple(dict.fromkeys(_misfits(record.get(name), column, name))) for name, column in columns.items()}
    free = {name for name, column in columns.items() if not (column.required or column.primary_key)}
    lenient = free if contract.mode == "discard_value" else set()
    row = {name: None if faults[name] else record.get(name) for name in columns}
    unknown = {name: value for name, value in record.items() if name not in columns and value is not None}
    unknown_fields = tuple(f"{name}: not in the contract" for name in unknown)
    if contract.mode == "evolve" and isinstance(row[EXTRA], str | None):
        row[EXTRA] = _joined(row[EXTRA], unknown)
    return Typed(
        row,
        wrong=tuple(name for name, found in faults.items() if found and name not in lenient),
        reasons=tuple(reason for name, found in faults.items() if name not in lenient for reason in found)
        + (unknown_fields if contract.mode in ("freeze", "discard_row") else ()),
        carried=tuple(unknown) if contract.mode == "evolve" else (),
        discarded=tuple(reason for name in columns if name in lenient for reason in faults[name])
        + (unknown_fields if contract.mode == "discard_value" else ()),
    )


def _joined(text: str | None, unknown: JsonObject) -> str | None:
    try:
        return with_extra(text, unknown)
    except (ValueError, TypeError):  # not a JSON object: the contract reports this fault
        return text


def _misfits(value: Any, part: Property, path: str) -> Iterator[str]:
    """Yield the reasons why a JSON value does not fit its property; null always fits, required values are checked elsewhere."""
    if value is None:
        return
    kinds = {"string": str, "boolean": bool, "integer": int, "number": int | float, "object": dict, "array": list}
    if not isinstance(value, kinds[part.logical_type]) or (isinstance(value, bool) and part.logical_type != "boolean"):
        article = "an" if part.logical_type[0] in "aio" else "a"
        yield f"{path}: not {article} {part.logical_type}"
    elif isinstance(value, int | float) and part.logical_type_options.format:
        yield from _out_of_range(value, part.logical_type_options.format, path)
    elif isinstance(value, list) and part.items:
        for item in value:
            yield from _misfits(item, part.items, f"{path}[]")
    elif isinstance(value, dict):
        for field in part.properties:
            yield from _misfits(value.get(field.name), field, f"{path}.{field.name}")
        known = {field.name for field in part.properties}
        yield from (f"{path}.{name}: not in the contract" for name in value if name not in known)


def _out_of_range(value: int | float, width: str, path: str) -> Iterator[str]:
    lowest, highest = _RANGES[width, type(value)]
    if not lowest <= value <= highest:
        yield f"{path}: out of range"


@dataclass
class Report:
    """The result of a check.

    Attributes:
        reasons: number of rows by reason; a row counts under each of its reasons.
        first: the first places by reason.
        faulty: the first faulty rows with all their reasons.
        discarded: number of values by reason that become null, or are dropped with their column, in valid rows.
        carried: columns that go into `extra`.
    """

    contract: str
    version: str
    mode: str
    rows: int = 0
    at_fault: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[str]] = field(default_factory=dict)
    faulty: list[JsonObject] = field(default_factory=list)
    discarded: Counter[str] = field(default_factory=Counter)
    carried: list[str] = field(default_factory=list)

    @property
    def kept(self) -> int:
        return self.rows - self.at_fault

    def as_dict(self) -> JsonObject:
        return vars(self) | {"kept": self.kept}

    def add(self, place: str, reasons: Sequence[str], limit: int) -> None:
        """Add a faulty row."""
        self.at_fault += 1
        self.reasons.update(reasons)
        for reason in reasons:
            places = self.first.setdefault(reason, [])
            places += [place] if len(places) < _FIRST else []
        if len(self.faulty) < limit:
            self.faulty.append({"place": place, "reasons": list(reasons)})


def check_parquet(files: Sequence[Path], contract: Contract, limit: int = 20) -> Report:
    """Check the rows of Parquet files; a place is the file name and the row, from 0.

    Raises:
        DataError: a file is not Parquet, or its columns are not those of the contract.
    """
    report = Report(contract.name, contract.version, contract.mode)
    with tempfile.TemporaryDirectory() as spill:
        for index, row, reasons in _judged(Store(Path(spill)), files, contract, report):
            report.add(f"{files[index].name} row {row}", reasons, limit)
    report.rows = sum(pq.read_metadata(file).num_rows for file in files)
    return report


def check_records(records: Iterable[Record], contract: Contract, limit: int = 20) -> Report:
    """Check JSON records. A line without a record is a faulty row.

    A value of a wrong type is a fault of its own; no other faults of that column are reported.
    """
    report = Report(contract.name, contract.version, contract.mode)
    with tempfile.TemporaryDirectory() as folder:
        typing = _Typing(Path(folder), contract, report)
        typing.read(records)
        for index, row, reasons in _judged(Store(Path(folder) / "store"), typing.files, contract, report):
            typing.add_faults(index * PART_ROWS + row, reasons)
    for line, reasons in sorted(typing.faults.items()):
        report.add(typing.places[line], reasons, limit)
    report.rows = len(typing.places)
    report.discarded.update(typing.discarded())
    return report


class _Typing:
    """Writes records to Parquet files of `PART_ROWS` rows, so that the query for datasets checks them, too."""

    def __init__(self, folder: Path, contract: Contract, report: Report) -> None:
        self.files: list[Path] = []
        self.places: list[str] = []  # by line
        self.faults: dict[int, list[str]] = {}  # by line
        self._folder, self._contract, self._report = folder, contract, report
        self._rows: list[Row] = []
        self._lines: list[int] = []  # the line of each row
        self._discarded: dict[int, tuple[str, ...]] = {}
        self._wrong: dict[int, tuple[str, ...]] = {}  # columns by line whose faults are known already

    def read(self, records: Iterable[Record]) -> None:
        for line, (place, record) in enumerate(records):
            self.places.append(place)
            if isinstance(record, str):
                self.faults[line] = [record]
                continue
            self._add(line, typed(record, self._contract))
            if len(self._rows) == PART_ROWS:
                self._write()
        self._write()

    def add_faults(self, row: int, reasons: Sequence[str]) -> None:
        """Add the faults of a row, without those that only follow from a value of a wrong type."""
        line = self._lines[row]
        about_wrong = tuple(f"{name}{end}" for name in self._wrong.get(line, ()) for end in (": ", "[", "."))
        if new := [reason for reason in reasons if not reason.startswith(about_wrong)]:
            self.faults.setdefault(line, []).extend(new)

    def discarded(self) -> Counter[str]:
        """Count the discarded values of valid rows."""
        return Counter(reason for line, reasons in self._discarded.items() if line not in self.faults for reason in reasons)

    def _add(self, line: int, found: Typed) -> None:
        self._rows.append(found.row)
        self._lines.append(line)
        if found.reasons:
            self.faults[line] = list(found.reasons)
        if found.wrong:
            self._wrong[line] = found.wrong
        self._discarded[line] = found.discarded
        self._report.carried += [name for name in found.carried if name not in self._report.carried]

    def _write(self) -> None:
        self.files.append(self._folder / f"part-{len(self.files):05d}.parquet")
        write_parquet(pa.Table.from_pylist(self._rows, schema=arrow_schema(self._contract)), self.files[-1])
        self._rows = []


def _judged(store: Store, files: Sequence[Path], contract: Contract, report: Report) -> Iterator[tuple[int, int, list[str]]]:
    """Yield (file, row, reasons) of every faulty row; discarded values of the others go into `report`."""
    layout = layout_of({str(file): file_schema(file) for file in files}, contract)
    with session(store, files) as duck:
        create_violation_tables(duck, files, contract, layout)
        report.discarded.update(dict(duck.execute("select reason, count(*) from discarded group by all").fetchall()))
        report.carried += list(layout.unknown) if contract.mode == "evolve" else []
        rows = duck.execute("select file_index, file_row_number, reasons from rejected order by file_index, file_row_number")
        while some := rows.fetchmany(1024):
            yield from some


def contract_of(columns: Iterable[str]) -> Contract | None:
    """Return the contract whose required columns are all present; of several the one with most; None if that is ambiguous."""
    names = set(columns)
    needs = {name: {column.name for column in load_contract(name).columns if column.required} for name in contract_names()}
    fits = sorted((len(required), name) for name, required in needs.items() if required <= names)
    if not fits or (len(fits) > 1 and fits[-1][0] == fits[-2][0]):
        return None
    return load_contract(fits[-1][1])
