"""The job of the data plane benchmark, which every engine does, and its measurement.

Filter, decontaminate, deduplicate conversations, group, choose the best-worst pair of each group, and write the pairs with
tokens, masks and messages of both sides. An engine reads Parquet files and writes one; the rules and their order are those
of clawpipe.data.curation, and all engines must produce the same pairs.
"""

from __future__ import annotations

import hashlib
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel

from clawpipe.core.config.curation import Curation, Filters, Pairs
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.refs import DatasetRef

MAX_TOKENS, MAX_TURNS, MARGIN, LENGTH_RATIO = 512, 8, 0.1, 3.0
ENDINGS = ("completed", "partial", "truncated")
SETTINGS = Curation(
    max_tokens=MAX_TOKENS,
    filters=Filters(endings=ENDINGS, max_turns=MAX_TURNS),
    pairs=Pairs(strategy="best-worst", margin=MARGIN, length_ratio=LENGTH_RATIO),
)
PAYLOAD = ("trajectory_id", "token_ids", "loss_mask", "messages")
STREAMS = [f"{side}_{stream}" for side in ("chosen", "rejected") for stream in ("token_ids", "loss_mask")]
RESULT = pa.schema(
    [
        schema_of("preference_pairs").field(name)
        for name in ("chosen_id", "rejected_id", "margin", *STREAMS, "prompt", "chosen", "rejected")
    ]
)


class Job(BaseModel):
    """The arguments of an engine. `files` are paths by the name of their dataset; `work` is a directory for this engine alone."""

    store: Path
    trajectories: DatasetRef
    scores: DatasetRef
    items: DatasetRef
    files: dict[str, list[Path]]
    threads: int
    memory: str | None = None
    work: Path


@dataclass
class Done:
    """The result of an engine. `count` describes the output, untimed; `laps` are seconds from the start to points on the way."""

    count: Callable[[], dict[str, object]]
    laps: dict[str, float] = field(default_factory=dict)


def measure(engine: Callable[[Job], Done], job: Job) -> dict[str, object]:
    """Return seconds, CPU seconds and peak memory in MB of this process and its children, and a description of the output."""
    before, start = _cpu_seconds(), time.perf_counter()
    done = engine(job)
    seconds, spent = time.perf_counter() - start, _cpu_seconds() - before
    figures = {"seconds": seconds, "cpu_seconds": spent, "peak_mb": _peak_mb(), "load": os.getloadavg()[0], "laps": done.laps}
    return figures | {"result": done.count()}


def _cpu_seconds() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in usage)


def _peak_mb() -> float:
    """Return VmHWM, because ru_maxrss of a new process starts at its parent's."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


def pairs_in(files: Sequence[Path]) -> dict[str, object]:
    """Return number and digest of the pairs in any order, and their size, from files with at least the columns of RESULT."""
    pairs, carried = [], dict.fromkeys((*STREAMS, "prompt", "chosen", "rejected"), 0)
    for batch in _batches(files):
        pairs += zip(*(batch[name].to_pylist() for name in ("chosen_id", "rejected_id", "margin")), strict=True)
        for name in carried:
            flat = pc.list_flatten(batch[name])
            texts = pc.struct_field(flat, "content") if pa.types.is_struct(flat.type) else None
            carried[name] += len(flat) if texts is None else pc.sum(pc.binary_length(texts)).as_py() or 0
    text = "\n".join(f"{chosen} {rejected} {margin:.9f}" for chosen, rejected, margin in sorted(pairs))
    return {"pairs": len(pairs), "digest": hashlib.sha256(text.encode()).hexdigest(), "carried": carried}


def _batches(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from pq.ParquetFile(file).iter_batches(1024, columns=RESULT.names)
