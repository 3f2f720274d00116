"""Open DuckDB over files of the store: in memory, and limited to the given files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.store.artifacts import Store, staging
from clawpipe.core.system.processes import trim_heap

# Half of the memory, because the limit bounds DuckDB's buffers, not the process; beyond it narrow tables spill to disk.
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "50%",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


@contextmanager
def session(
    store: Store, files: Iterable[str | Path], threads: int | None = None, memory: str | None = None, ordered: bool = True
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection; its temporary tables end with the block.

    Spills go to the store's staging directory. No extension is loaded, and no other file can be read or written.

    Args:
        files: the files that `read_parquet` may open.
        threads: CPU threads; None takes every core.
        memory: limit of DuckDB's buffers, such as "512MB", beyond which it spills; None takes half of the machine's. The
            process takes more.
        ordered: whether rows keep the order of the files through tables that are made of them; without it that takes less memory.
    """
    settings = _SETTINGS | ({"threads": str(threads)} if threads else {}) | ({"memory_limit": memory} if memory else {})
    with staging(store.root, "duckdb") as spill, _giving_back(), duckdb.connect(":memory:", config=settings) as duck:
        duck.execute("set temp_directory = $path", {"path": str(spill)})
        duck.execute("set allowed_paths = $paths", {"paths": [str(file) for file in files]})
        duck.execute("set enable_external_access = false")
        duck.execute("set preserve_insertion_order = $ordered", {"ordered": ordered})
        duck.execute("set lock_configuration = true")
        yield duck


@contextmanager
def _giving_back() -> Iterator[None]:
    """Return freed memory to the system before and after the block."""
    release_memory()
    try:
        yield
    finally:
        release_memory()


def release_memory() -> None:
    """Return freed memory to the system; malloc and Arrow would keep some 100 MB."""
    pa.default_memory_pool().release_unused()
    trim_heap()


def have_different_columns(files: Sequence[str | Path]) -> bool:
    """Whether files differ in their columns, so that `read_parquet` has to unite them by name.

    Uniting keeps the footers of all files in memory, which costs 250 MB for 1,200 files.
    """
    layouts = (pq.read_schema(file) for file in files)
    first = next(layouts, None)
    return any(not layout.equals(first) for layout in layouts)
