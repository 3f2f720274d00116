"""Datasets: immutable directories of Parquet files with one layout."""

from __future__ import annotations

import json
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.files import is_lost, read_manifest
from clawpipe.core.store.refs import DatasetRef
from clawpipe.core.store.replaced import current_digest
from clawpipe.errors import DataError, NotFoundError

# Log-probs are full-precision noise: byte-stream-split without a dictionary stores them smallest.
_NO_DICTIONARY = tuple(
    f"{name}.list.element" for name in ("logprobs", "advantages", "reference", "proximal", "teacher", "top_teacher")
)
# Small row groups cost ~10 % of the size of wide rows, and keep a join over them within a memory limit. Narrow rows have one group
# in each file: with many small groups, readers would keep more metadata than rows.
_WIDE = frozenset(("messages", "token_ids", "prompt", "row", *(path.split(".")[0] for path in _NO_DICTIONARY)))
_ROW_GROUP, _NARROW_ROWS = 1024, 8192
_SHORTEST = 6  # least length of a digest's prefix
_AT_ONCE = 2  # parts written at the same time; as many are in memory


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write one file in the store's layout: equal tables give equal bytes."""
    leaves = [path_ for path_ in _leaf_paths(table.schema) if path_ not in _NO_DICTIONARY]
    split = {path_: "BYTE_STREAM_SPLIT" for path_ in _leaf_paths(table.schema) if path_ in _NO_DICTIONARY}
    pq.write_table(
        table.combine_chunks(),
        path,
        compression="zstd",
        compression_level=3,
        row_group_size=_ROW_GROUP if _is_wide(table.schema) else None,
        use_dictionary=leaves,  # pyright: ignore[reportArgumentType]  # pyarrow takes column names as well
        column_encoding=split or None,
    )


def _is_wide(schema: pa.Schema) -> bool:
    return any(field.name in _WIDE and not pa.types.is_integer(field.type) for field in schema)


def publish_dataset(
    store: Store, name: str, tables: Iterable[pa.Table], *, schema_version: str = "1", parents: Iterable[str] = ()
) -> DatasetRef:
    """Publish tables as `part-00000.parquet` and so on, in the order given."""
    return publish_parts(store, name, tables, schema_version=schema_version, parents=parents)


def publish_files(
    store: Store, name: str, files: Iterable[Path], *, schema_version: str = "1", parents: Iterable[str] = ()
) -> DatasetRef:
    """Publish Parquet files that are already in the store's layout, linked where the file system can, in the order given."""
    return publish_parts(store, name, files, schema_version=schema_version, parents=parents)


def publish_parts(
    store: Store, name: str, parts: Iterable[pa.Table | Path], *, schema_version: str = "1", parents: Iterable[str] = ()
) -> DatasetRef:
    """Publish tables and files of the store's layout, in the order given."""

    def fill(directory: Path) -> JsonObject:
        rows = sum(_written(parts, directory))
        return {"kind": "dataset", "name": name, "schema_version": schema_version, "rows": rows}

    digest, directory = store.publish(name, fill)
    manifest = read_manifest(directory)
    return DatasetRef(
        name=name,
        digest=digest,
        rows=manifest["rows"],
        schema_version=manifest["schema_version"],
        parents=tuple(sorted(set(parents))),
    )


def dataset_ref(store: Store, name: str, digest: str) -> DatasetRef:
    """Return the ref of a stored dataset by its digest; of a replaced one, the ref of its successor.

    Raises:
        DataError: the dataset is missing or damaged.
    """
    ref = DatasetRef(name=name, digest=current_digest(store, digest), rows=0)
    manifest = read_manifest(store.require(ref))
    return ref.model_copy(update={"rows": manifest["rows"], "schema_version": manifest["schema_version"]})


def stored_datasets(store: Store) -> list[DatasetRef]:
    """Return every dataset with a readable manifest, intact or not, by name and digest.

    Raises:
        BusyError, ConfigError: the shared store does not answer.
    """
    return [ref for name, digest in store.names() if (ref := stored_dataset(store, name, digest))]


def stored_dataset(store: Store, name: str, digest: str) -> DatasetRef | None:
    """Return the ref of an artifact, intact or not; None if it is no dataset, or its manifest is lost or damaged."""
    try:
        manifest = store.manifest(name, digest)
        if manifest.get("kind") == "dataset":
            return DatasetRef(name=name, digest=digest, rows=manifest["rows"], schema_version=manifest["schema_version"])
    except OSError as error:
        if not is_lost(error):
            raise
    except (KeyError, DataError, json.JSONDecodeError, UnicodeDecodeError):
        pass
    return None


def find_dataset(store: Store, word: str) -> DatasetRef:
    """Find a dataset by digest or its prefix, by `name/digest`, or by name alone, which is the newest one with rows: an ingest that
    found nothing new leaves an empty one.

    Raises:
        NotFoundError: there is none, or several have this prefix.
    """
    name, _, start = word.rpartition("/")
    everything = stored_datasets(store)
    found = [ref for ref in everything if len(start) >= _SHORTEST and ref.digest.startswith(start) and name in ("", ref.name)]
    if not found:
        last = newest(store, [ref for ref in everything if ref.name == word])
        found = [last] if last else []
    if len({ref.digest for ref in found}) != 1:
        begin = f"{len(found)} datasets begin like this" if found else "there is no such dataset"
        raise NotFoundError(begin, word, "`clawpipe datasets list` shows all")
    return found[0]


def newest(store: Store, refs: Iterable[DatasetRef]) -> DatasetRef | None:
    """Return the dataset with rows that was stored last; without any, the last one; None if there are none."""
    return max(refs, key=lambda ref: (ref.rows > 0, _made(store, ref)), default=None)


def newest_first(store: Store, name: str) -> Iterator[pa.Table]:
    """Yield the rows of every dataset of a name, the newest first; without those that are damaged."""
    for ref in sorted((ref for ref in stored_datasets(store) if ref.name == name), key=lambda ref: _made(store, ref), reverse=True):
        with suppress(DataError):
            table = read_dataset(store, ref)
            yield table


def _made(store: Store, ref: DatasetRef) -> float:
    path = store.path(ref)
    return path.stat().st_mtime if path.exists() else 0.0


def read_dataset(store: Store, ref: DatasetRef, columns: list[str] | None = None) -> pa.Table:
    """Read a whole dataset, files in order.

    Raises:
        DataError: the dataset is missing or damaged.
    """
    return pa.concat_tables([pq.read_table(file, columns=columns) for file in dataset_files(store, ref)])


def dataset_batches(store: Store, ref: DatasetRef, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a dataset in order, a few thousand at a time; of wide rows, fewer.

    Raises:
        DataError: the dataset is missing or damaged.
    """
    for file in dataset_files(store, ref):
        with pq.ParquetFile(file) as parquet:
            wide = _is_wide(parquet.schema_arrow) and (columns is None or not _WIDE.isdisjoint(columns))
            yield from parquet.iter_batches(_ROW_GROUP if wide else _NARROW_ROWS, columns=columns)


def dataset_rows(store: Store, ref: DatasetRef, columns: list[str] | None = None) -> Iterator[Row]:
    """Yield the rows of a dataset in order; a batch of them is in memory as Python objects at a time.

    Raises:
        DataError: the dataset is missing or damaged.
    """
    for batch in dataset_batches(store, ref, columns):
        yield from batch.to_pylist()


def rows_at(store: Store, ref: DatasetRef, places: Sequence[int]) -> Iterator[Row]:
    """Yield the rows at these places of the dataset, which rise; only row groups with one of them are read.

    Raises:
        DataError: the dataset is missing or damaged.
    """
    first, left = 0, deque(places)
    for file in dataset_files(store, ref):
        with pq.ParquetFile(file) as parquet:
            for group in range(parquet.num_row_groups):
                end, here = first + parquet.metadata.row_group(group).num_rows, list[int]()
                while left and left[0] < end:
                    here.append(left.popleft() - first)
                if here:
                    yield from parquet.read_row_group(group).take(pa.array(here, pa.int64())).to_pylist()
                first = end


def dataset_files(store: Store, ref: DatasetRef) -> list[Path]:
    """Return the Parquet files of an intact dataset, in order."""
    directory = store.require(ref)
    return [directory / entry["path"] for entry in read_manifest(directory)["files"]]


def _written(parts: Iterable[pa.Table | Path], directory: Path) -> Iterator[int]:
    """Write the parts, and yield the number of rows of each. One part is written while DuckDB computes the next."""
    with ThreadPoolExecutor(_AT_ONCE) as writers:
        written = deque[Future[int]]()
        for number, part in enumerate(parts):
            written.append(writers.submit(_put, part, directory / f"part-{number:05d}.parquet"))
            if len(written) == _AT_ONCE:
                yield written.popleft().result()
        yield from (one.result() for one in written)


def _put(part: pa.Table | Path, target: Path) -> int:
    """Write one part; return its number of rows."""
    if isinstance(part, Path):
        _link(part, target)
    else:
        write_parquet(part, target)
    return pq.read_metadata(target).num_rows


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def _leaf_paths(schema: pa.Schema) -> list[str]:
    """Yield the dotted paths of leaf columns, as Parquet names them."""

    def walk(path: str, kind: pa.DataType) -> list[str]:
        if pa.types.is_list(kind):
            return walk(f"{path}.list.element", kind.value_type)
        if pa.types.is_struct(kind):
            return [leaf for field in kind for leaf in walk(f"{path}.{field.name}", field.type)]
        return [path]

    return [leaf for field in schema for leaf in walk(field.name, field.type)]
