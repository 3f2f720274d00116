"""Compute MinHash signatures: one dataset for each dataset of trajectories.

128 permutations in 16 bands of 8: two texts of similarity s share a band with probability 1 - (1 - s^8)^16, that is 0.947 for 0.8,
0.99998 for 0.9, and 0.06 for 0.5. A shared band makes a candidate; `duplicates` then computes the exact similarity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rensa import RMinHash  # pyright: ignore[reportAttributeAccessIssue]  # a compiled module without stubs

from clawpipe.core.basics.words import words_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.data.similarity.words import SHINGLE, Hashes, dialogue_text, scrambled, shingles, word_hashes

PERMUTATIONS, BANDS, SEED = 128, 16, 42
ROWS = PERMUTATIONS // BANDS
SCHEMA = pa.schema(
    [("trajectory_id", pa.string()), ("item_id", pa.string()), ("shingles", pa.int32()), ("keys", pa.list_(pa.uint64()))]
)
_COLUMNS = ["trajectory_id", "item_id", "messages"]
_BATCH = 1024  # trajectories with their words in memory at a time


def sign(store: Store, trajectories: DatasetRef) -> StepResult:
    """Store the signature of every trajectory: its number of distinct shingles, and a key for each band; without words, no keys.

    Returns:
        output: `signatures`, in the order of the trajectories.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    batches = (_signed(batch) for file in dataset_files(store, trajectories) for batch in _batches(file))
    output = publish_dataset(store, "signatures", rechunk(batches, SCHEMA), parents=[trajectories.digest])
    settings = {"shingle": SHINGLE, "permutations": PERMUTATIONS, "bands": BANDS, "seed": SEED}
    return StepResult(output=output, rows_in=trajectories.rows, rows_out=output.rows, details=settings)


def shingles_of(messages: Sequence[dict[str, Any]]) -> Hashes:
    """Return the shingles of a trajectory's text."""
    return shingles(word_hashes(words_of(dialogue_text(messages))))


def band_keys(sets: Sequence[Hashes]) -> list[list[int]]:
    """Return for each set of shingles one uint64 key for each band; equal bands have equal keys, an empty set has none."""
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.uint64)
    flat = np.concatenate([np.empty(0, np.uint64), *sets])
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(flat, offsets, PERMUTATIONS, SEED)
    digests = np.array(matrix.to_rows(), np.uint64).reshape(len(sets), BANDS, ROWS)
    keys = np.zeros((len(sets), BANDS), np.uint64)
    for row in range(ROWS):
        keys = scrambled(keys + digests[:, :, row] + np.uint64(row + 1))
    return [own.tolist() if len(shingled) else [] for own, shingled in zip(keys, sets, strict=True)]


def _batches(file: Any) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(file) as parquet:
        yield from parquet.iter_batches(_BATCH, columns=_COLUMNS)


def _signed(batch: pa.RecordBatch) -> pa.RecordBatch:
    sets = [shingles_of(messages) for messages in batch["messages"].to_pylist()]
    columns = [batch["trajectory_id"], batch["item_id"], pa.array(map(len, sets), pa.int32())]
    return pa.record_batch([*columns, pa.array(band_keys(sets), SCHEMA.field("keys").type)], schema=SCHEMA)
