"""clawpipe's version of the benchmark's job, and a lower bound: reading every column of the trajectories."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas  # noqa: F401  # pyarrow imports it with the first table; imports are not timed
import pyarrow.parquet as pq
from data_plane_job import SETTINGS, Done, Job, pairs_in

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.notes import Notes
from clawpipe.data.curation import measures, partitions, runner, steps


def clawpipe_job(job: Job) -> Done:
    """Run `curate` as a first night does, including the check of its inputs' digests and the publication of the pairs."""
    forget(Store(job.store))
    store, start, wide = Store(job.store), time.perf_counter(), [0.0]
    payload = steps._payload

    @contextmanager
    def timed_payload(*arguments: Any) -> Iterator[Any]:
        """Note when the narrow steps end: only the last step reads and writes the payload."""
        begin = time.perf_counter()
        with payload(*arguments) as rows:
            yield rows
        wide[0] += time.perf_counter() - begin

    steps._payload = timed_payload
    inputs = ([job.trajectories], [job.scores], job.items)
    done = runner.curate(store, *inputs, SETTINGS, "dpo", threads=job.threads, memory=job.memory)
    laps = {"narrow": time.perf_counter() - start - wide[0]}
    return Done(lambda: pairs_in(dataset_files(store, done.output)), laps)


def forget(store: Store) -> None:
    """Remove the results of earlier nights."""
    for kind in (measures.NAME, partitions.NAME):
        for note in Notes(store, kind):
            store.evict(note.dataset)
        shutil.rmtree(Notes(store, kind).directory, ignore_errors=True)


def scan_job(job: Job) -> Done:
    rows = 0
    for file in job.files["trajectories"]:
        for batch in pq.ParquetFile(file).iter_batches(8192):
            rows += batch.num_rows
    return Done(lambda: {"rows": rows})
