"""Convert rows of tables to lines of JSON: Parquet files, saved datasets, datasets of a hub.

    rows.parquet             a Parquet file
    saved/                   what `Dataset.save_to_disk` wrote: Arrow files that `state.json` names
    hf:org/name:split        of the hub, or of a folder, by `datasets.load_dataset`; the split may be left out if there is only one

A row's number counts from 1, its offset is its index.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import Row
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.untaught import ENDS
from clawpipe.errors import DataError, NotFoundError

HUB = "hf:"
TABLES = (".parquet", ".arrow")
_NO_ROWS = ("dataset_info.json", "dataset_dict.json", "manifest.json", "state.json")  # metadata of a dataset
_NUMBERS = (Decimal, np.floating)  # that JSON has no form for
_NO_OBJECT = (ValueError, OverflowError, KeyError)  # of texts that are not UTF-8, times beyond the year 9999, unknown time zones
_ANSWERS = ("choices", "response")  # what a log holds answers in
_ROWS = 64  # rows that are Python objects at a time


def is_table(file: str) -> bool:
    return file.startswith(HUB) or file.lower().endswith(TABLES)


def holds_rows(file: str) -> bool:
    """Whether a file in a dataset folder holds rows, and is neither metadata nor an unused Arrow file.

    Raises:
        DataError: the folder's `state.json` does not name its files.
    """
    path = Path(file)
    if path.suffix.lower() == ".arrow":
        return path.name in _saved(path.parent)
    return path.name not in _NO_ROWS


def _saved(folder: Path) -> list[str]:
    """Return the names of the Arrow files that `save_to_disk` wrote to a folder."""
    state = folder / "state.json"
    try:
        return [entry["filename"] for entry in json.loads(state.read_bytes())["_data_files"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise DataError("does not name the files of its data set", str(state), "save the data set once more") from error


def read_rows(file: str) -> Iterator[bytes | RefusedError]:
    """Each row of a table as a JSON object, without the fields of structs that are null: a column of structs has every field that
    any of its rows has, so that calls would get arguments that they never had. A row with NaN or an infinite number is no JSON, and
    is refused like such a line. For a row with a value that Python cannot hold the reason is yielded why it is refused.

    Raises:
        OSError, ArrowException: the file cannot be read, or not to its end.
        NotFoundError: no such data set or split on the hub.
    """
    rows = _hub_rows(file) if file.startswith(HUB) else _rows(_batches(file))
    for row in rows:
        yield row if isinstance(row, RefusedError) else _as_json({name: _narrowed(part, name) for name, part in row.items()})


def _batches(file: str) -> Iterator[pa.RecordBatch]:
    if file.lower().endswith(".parquet"):
        with pq.ParquetFile(file) as parquet:
            yield from parquet.iter_batches(_ROWS)
        return
    with pa.memory_map(file) as source, pa.ipc.open_stream(source) as stream:
        yield from stream


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row | RefusedError]:
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            yield from _objects(batch.slice(start, _ROWS))


def _objects(rows: pa.RecordBatch | pa.Table) -> list[Row | RefusedError]:
    """Convert rows; one by one where that fails, so that only the row that fails is refused."""
    try:
        return rows.to_pylist()
    except _NO_OBJECT as error:
        if rows.num_rows > 1:
            return [one for place in range(rows.num_rows) for one in _objects(rows.slice(place, 1))]
        return [RefusedError("not UTF-8" if isinstance(error, UnicodeDecodeError) else "a value of a column cannot be read")]


def _hub_rows(name: str) -> Iterator[Row | RefusedError]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    path, _, split = name.removeprefix(HUB).partition(":")
    try:
        loaded = load_dataset(path)
    except (DatasetsError, OSError, ValueError) as error:
        raise NotFoundError(f"cannot be loaded: {error}", name, "name it as hf:org/name or hf:org/name:split") from error
    if split not in loaded and (split or len(loaded) > 1):
        raise NotFoundError(f"no split {split!r}", name, f"name one of {', '.join(f'{HUB}{path}:{known}' for known in loaded)}")
    tables = loaded[split or next(iter(loaded))].with_format("arrow").iter(_ROWS)  # as stored: images are not decoded
    yield from (row for table in tables for row in _objects(table))  # type: ignore[arg-type]


def _as_json(row: Row) -> bytes:
    """Return a row as JSON; orjson would write null for a number that is not finite, and has no integers beyond 64 bits."""
    with suppress(orjson.JSONEncodeError):
        if _is_finite(row):
            return orjson.dumps(row, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    return json.dumps(row, default=_plain, ensure_ascii=False).encode()


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _narrowed(value: Any, within: str = "") -> Any:
    """Return a value without null fields of structs, and with numbers of other types as JSON's.

    Args:
        within: the field that holds it.
    """
    if isinstance(value, dict):
        unended = ENDS if within in _ANSWERS and _is_full(value) else ()
        return {name: _narrowed(part, name) for name, part in value.items() if part is not None or name in unended}
    if isinstance(value, list) and any(isinstance(part, (dict, list, *_NUMBERS)) for part in value):
        return [_narrowed(part, within) for part in value]
    return _number(value) if isinstance(value, _NUMBERS) else value


def _is_full(answer: Row) -> bool:
    """Whether an answer has half of the fields of its column, or more. Then null in place of a reason means that it never ended; an
    answer with fewer was written in another form, which may give no reasons at all."""
    held = [part is not None for name, part in answer.items() if name not in ENDS]
    return 2 * sum(held) >= len(held)


def _number(value: Decimal | np.floating) -> float | int:
    """Return a decimal, or a number of numpy, as a number of Python."""
    return int(value) if isinstance(value, Decimal) and value.as_tuple().exponent == 0 else float(value)


def _plain(value: Any) -> Any:
    """Convert values that JSON lacks: bytes to a data URL, anything else to a text."""
    if isinstance(value, bytes):
        return f"data:;base64,{base64.b64encode(value).decode()}"
    return str(value)
