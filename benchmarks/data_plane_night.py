"""The data steps of a night that adds one dataset to a hundred of the same size, compared with the same night from nothing.

The steps are those of a night on stored data: validation of each dataset of trajectories and of scores, and curation. The first
night finds the results of the night before, validated datasets and their measures; the second does not. Both must produce the
same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from data_plane_clawpipe import forget
from data_plane_data import Shape, write_sources
from data_plane_job import SETTINGS, Done
from pydantic import BaseModel

from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.data.curation.runner import curate

OLD = 100  # datasets known before, beside a new one


class Nights(BaseModel):
    """Datasets, oldest first; the first OLD of the valid ones are known from the night before."""

    store: Path
    trajectories: list[DatasetRef]
    scores: list[DatasetRef]
    items: DatasetRef
    valid: list[DatasetRef] = []
    valid_scores: list[DatasetRef] = []
    threads: int
    memory: str
    work: Path


def write_nights(store: Store, rows: int, shape: Shape, threads: int, memory: str, work: Path) -> Nights:
    """Write about `rows` old rows and a hundredth of them new, and all results of a night over the old ones."""
    parts = [write_sources(store, rows // OLD, shape, seed=seed) for seed in range(OLD + 1)]
    items = publish_dataset(store, "task_items", [read_dataset(store, part.items) for part in parts])
    trajectories, scores = [part.trajectories for part in parts], [part.scores for part in parts]
    nights = Nights(
        store=store.root, trajectories=trajectories, scores=scores, items=items, threads=threads, memory=memory, work=work
    )
    valid, valid_scores = _validated(nights, trajectories[:OLD], scores[:OLD])
    _curated(nights, valid, valid_scores)
    return nights.model_copy(update={"valid": valid, "valid_scores": valid_scores})


def added_job(nights: Nights) -> Done:
    """Run the night that only has to validate and measure the new dataset."""
    return _night(nights, nights.valid, nights.valid_scores)


def whole_job(nights: Nights) -> Done:
    """Run the night that has to do everything; earlier results are removed first, untimed in `laps`."""
    forget(Store(nights.store))
    return _night(nights, [], [])


def _night(nights: Nights, valid: Sequence[DatasetRef], scores: Sequence[DatasetRef]) -> Done:
    start = time.perf_counter()
    new, new_scores = _validated(nights, nights.trajectories[len(valid) :], nights.scores[len(scores) :])
    validated = time.perf_counter()
    made = _curated(nights, [*valid, *new], [*scores, *new_scores])
    laps = {"validate": validated - start, "curate": time.perf_counter() - validated}
    return Done(lambda: {"digest": made.digest, "pairs": made.rows}, laps)


def _validated(
    nights: Nights, trajectories: Sequence[DatasetRef], scores: Sequence[DatasetRef]
) -> tuple[list[DatasetRef], list[DatasetRef]]:
    given = {"trajectories": trajectories, "scores": scores}
    store = Store(nights.store)
    kept = {name: [validate(store, ref, name, threads=nights.threads).dataset for ref in refs] for name, refs in given.items()}
    return kept["trajectories"], kept["scores"]


def _curated(nights: Nights, trajectories: Sequence[DatasetRef], scores: Sequence[DatasetRef]) -> DatasetRef:
    limits = {"threads": nights.threads, "memory": nights.memory}
    return curate(Store(nights.store), trajectories, scores, nights.items, SETTINGS, "dpo", **limits).dataset
