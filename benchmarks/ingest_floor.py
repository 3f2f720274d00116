"""What must ingest spend on a chat file, if all of its own checks cost nothing?

    python benchmarks/ingest_floor.py [--rows N] [--repeats N]

Each duty that touches every byte is done by the fastest library that clawpipe has: DuckDB parses the lines, Hyperscan searches
the texts for secrets, SHA-256 names them, and Arrow writes the rows as `clawpipe.core.store` does. CPU seconds of one thread,
beside those of DuckDB's plain JSON to Parquet; `floor` is the ratio that `over_duckdb_cpu` of benchmarks/ingest.py cannot exceed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from data_plane_data import SESSIONS, write_sources
from data_plane_ingest import COLUMNS, write_lines

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, write_parquet
from clawpipe.data.privacy.rules import load_rules
from clawpipe.data.privacy.suspects import Suspects


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="conversations, of about 2 kB")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each duty, in turn")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(floor(Path(directory), arguments.rows, arguments.repeats)))


def floor(work: Path, rows: int, repeats: int) -> dict[str, Any]:
    """Return the median CPU seconds of each duty, of DuckDB's plain job, and the ratio of that to their sum."""
    store, lines = Store(work / "store"), work / "chat.jsonl"
    write_lines(dataset_files(store, write_sources(store, rows, SESSIONS).trajectories), lines)
    duties = duties_on(lines, work)
    runs = [{name: _cpu_seconds(duty) for name, duty in duties.items()} for _ in range(repeats + 1)][1:]  # the first one warms up
    seconds = {name: round(statistics.median(run[name] for run in runs), 3) for name in duties}
    spent = sum(value for name, value in seconds.items() if name != "duckdb")
    return {"mb": round(lines.stat().st_size / 1e6, 1), "cpu_seconds": seconds, "floor": round(seconds["duckdb"] / spent, 3)}


def duties_on(lines: Path, work: Path) -> dict[str, Callable[[], object]]:
    """Return DuckDB's plain job, and the duties, by name."""
    duck = duckdb.connect(config={"threads": 1})
    duck.execute("set preserve_insertion_order = false")
    query = f"select * from read_json('{lines}', format = 'newline_delimited', columns = {COLUMNS!r})"
    table = duck.sql(query).to_arrow_table()
    contents = duck.sql(f"select unnest(messages).content as text from ({query})").to_arrow_table()
    texts = [text for text in contents["text"].to_pylist() if text]
    suspects = Suspects(tuple(hint for rule in load_rules() if rule.ships for hint in rule.hints))
    named = duck.from_arrow(contents)
    return {
        "duckdb": lambda: duck.execute(f"copy ({query}) to '{work / 'plain.parquet'}' (format parquet, compression zstd)"),
        "parse": lambda: duck.sql(query).to_arrow_table(),
        "secrets": lambda: suspects.among(texts),
        "digests": lambda: named.aggregate("bit_xor(hash(sha256(text)))").fetchall(),
        "write": lambda: write_parquet(table, work / "rows.parquet"),
    }


def _cpu_seconds(duty: Callable[[], object]) -> float:
    begin = time.process_time()
    duty()
    return time.process_time() - begin


if __name__ == "__main__":
    main()
