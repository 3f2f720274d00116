"""Ingest of clean chat files, compared with DuckDB converting JSON to Parquet without checks.

Both read the same JSON Lines (conversations of the benchmark's agent in OpenAI's form) and write zstd Parquet with small row
groups. clawpipe checks every line and message, names trajectories by content, searches the text for secrets, checks rows
against their contract and publishes datasets under their digests. Both must give the same number of rows and the same messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow.compute as pc
import pyarrow.parquet as pq
from data_plane_job import Done, Job

from clawpipe.core.basics.json_types import Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.home import Home
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest

_CALLS = 'STRUCT(id VARCHAR, "type" VARCHAR, "function" STRUCT(name VARCHAR, arguments VARCHAR))[]'
_MESSAGES = f"STRUCT(role VARCHAR, content VARCHAR, tool_call_id VARCHAR, tool_calls {_CALLS})[]"
COLUMNS = {"session_id": "VARCHAR", "model": "VARCHAR", "messages": _MESSAGES}


def write_lines(trajectories: Sequence[Path], output: Path) -> int:
    """Write one line per trajectory. Returns the number of lines."""
    count = 0
    with output.open("wb") as file:
        for path in trajectories:
            for batch in pq.ParquetFile(path).iter_batches(1024, columns=["trajectory_id", "messages"]):
                for row in batch.to_pylist():
                    converted = [_openai(message) for message in row["messages"]]
                    line = {"session_id": row["trajectory_id"], "model": "benchmark", "messages": converted}
                    file.write(orjson.dumps(line) + b"\n")
                    count += 1
    return count


def ingest_job(job: Job) -> Done:
    home = Home(job.work / "home")
    [lines] = job.files["lines"]
    done = ingest(home, [str(lines)], Options(format="auto"))
    files = dataset_files(Store(home.store), done.datasets["trajectories"])
    return Done(count=lambda: _sizes(files) | {"refused": done.refused.total()})


def duckdb_job(job: Job) -> Done:
    [lines] = job.files["lines"]
    output = job.work / "lines.parquet"
    with duckdb.connect(config={"threads": job.threads}) as duck:
        duck.execute("set preserve_insertion_order = false")
        query = f"select * from read_json($lines, format = 'newline_delimited', columns = {COLUMNS!r})"
        duck.execute(f"copy ({query}) to '{output}' (format parquet, compression zstd, row_group_size 1024)", {"lines": str(lines)})
    return Done(count=lambda: _sizes([output]) | {"refused": 0})


def _openai(message: Row) -> Row:
    converted = {"role": message["role"], "content": message["content"]}
    if message["tool_call_id"]:
        converted["tool_call_id"] = message["tool_call_id"]
    if message["tool_calls"]:
        converted["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in message["tool_calls"]
        ]
    return converted


def _sizes(files: Sequence[Path]) -> dict[str, int]:
    messages = list(_messages(files))
    size = sum(pc.sum(pc.binary_length(pc.struct_field(flat, "content"))).as_py() or 0 for _, flat in messages)
    return {"rows": sum(rows for rows, _ in messages), "messages": sum(len(flat) for _, flat in messages), "bytes": size}


def _messages(files: Sequence[Path]) -> Iterator[tuple[int, Any]]:
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(1024, columns=["messages"]):
            yield batch.num_rows, pc.list_flatten(batch["messages"])
