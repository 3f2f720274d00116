"""The benchmark's job by clawpipe itself, and the floor below it: reading every column of the trajectories and nothing else."""

from __future__ import annotations

import shutil
import time

import pyarrow.parquet as pq
from data_plane_job import SETTINGS, Done, Job, pairs_in

from clawpipe.curation import cohorts, measures, runner, steps
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files
from clawpipe.store.notes import Notes


def clawpipe_job(job: Job) -> Done:
    """`curate` as a first night calls it, the check of its inputs' digests and the publication of the pairs included."""
    forget(Store(job.store))
    store, start, laps = Store(job.store), time.perf_counter(), dict[str, float]()
    read = steps._read

    def timed_read(name: str) -> str:
        """The steps are narrow up to the one that reads the payload."""
        if name == "70_pairs":
            laps.setdefault("narrow", time.perf_counter() - start)
        return read(name)

    steps._read = timed_read
    inputs = ([job.trajectories], [job.scores], job.items)
    done = runner.curate(store, *inputs, SETTINGS, "dpo", threads=job.threads, memory=job.memory)
    return Done(lambda: pairs_in(dataset_files(store, done.output)), laps)


def forget(store: Store) -> None:
    """Remove what nights before have left."""
    for kind in (measures.NAME, cohorts.NAME):
        for note in Notes(store, kind):
            store.evict(note.dataset)
        shutil.rmtree(Notes(store, kind).directory, ignore_errors=True)


def scan_job(job: Job) -> Done:
    rows = 0
    for file in job.files["trajectories"]:
        for batch in pq.ParquetFile(file).iter_batches(8192):
            rows += batch.num_rows
    return Done(lambda: {"rows": rows})
