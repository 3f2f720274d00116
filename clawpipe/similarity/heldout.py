"""What is near to a held-out question: one cannot measure learning by a question that was learnt from.

Two ways to be near. A trajectory quotes a question: so many of its words stand in a row in some message, or the whole question
where it is shorter. Or a user asked nearly the same: the exact Jaccard similarity of shingles reaches the threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.config.curation import Near
from clawpipe.curation.joined_tables import LAYOUTS
from clawpipe.similarity.words import SHINGLE, Hashes, shingles, texts_of, windows, word_hashes, words_of
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, publish_dataset, read_dataset
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef, StepResult

SCHEMA = LAYOUTS["near_heldout"]  # of several items the first by id
_BATCH = 1024  # trajectories in memory at a time


@dataclass(frozen=True)
class Questions:
    """Held-out questions, ready to be looked for.

    Args:
        quoted: for each number of words, the hashes of all runs of so many words, sorted, and the item of each.
        asked: hash of a shingle to the items whose question has it.
        sizes: how many distinct shingles each item's question has.
    """

    quoted: Mapping[int, tuple[Hashes, Sequence[str]]]
    asked: Mapping[int, Sequence[str]]
    sizes: Mapping[str, int]


def near_heldout(store: Store, trajectories: DatasetRef, items: DatasetRef, config: Near) -> StepResult:
    """Trajectories that are near to a held-out item of `items`, one row each: a quotation first, else a near-duplicate.

    Questions of fewer than five words are left to the comparison of whole questions, which curation always makes.

    Returns:
        output: `near_heldout` of layout SCHEMA, in the order of the trajectories. details: how many of each kind.

    Raises:
        DataError: missing or damaged.
    """
    questions = prepare(read_dataset(store, items).to_pylist(), config.heldout_words)
    rows = [row for file in dataset_files(store, trajectories) for row in _near(file, questions, config.threshold)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    parents = [trajectories.digest, items.digest]
    output = publish_dataset(store, "near_heldout", rechunk(table.to_batches(), SCHEMA), parents=parents)
    kinds = {how: sum(row["how"] == how for row in rows) for how in ("n-gram", "near-duplicate")}
    return StepResult(output=output, rows_in=trajectories.rows, rows_out=output.rows, details=kinds)


def prepare(items: Iterable[Mapping[str, Any]], words: int) -> Questions:
    """The questions of the held-out ones among task items, an item's question being its last user message."""
    runs: dict[int, dict[int, str]] = {}
    asked: dict[int, list[str]] = {}
    sizes: dict[str, int] = {}
    for item_id, question in sorted(_heldout(items)):
        hashes = word_hashes(words_of(question))
        if len(hashes) < SHINGLE:
            continue
        size = min(words, len(hashes))
        for run in windows(hashes, size).tolist():
            runs.setdefault(size, {}).setdefault(run, item_id)
        own = shingles(hashes)
        sizes[item_id] = len(own)
        for shingle in own.tolist():
            asked.setdefault(shingle, []).append(item_id)
    return Questions({size: _sorted(found) for size, found in runs.items()}, asked, sizes)


def quoted_item(messages: Sequence[Mapping[str, Any]], questions: Questions) -> str | None:
    """The held-out item, the first by id, whose question is quoted in some message, whoever says it."""
    spoken = [word_hashes(words_of(text)) for message in messages if message["role"] != "system" for text in texts_of(message)]
    found = [
        items[place]
        for hashes in spoken
        for size, (runs, items) in questions.quoted.items()
        for place in np.flatnonzero(np.isin(runs, windows(hashes, size))).tolist()
    ]
    return min(found, default=None)


def asked_item(messages: Sequence[Mapping[str, Any]], questions: Questions, threshold: float) -> str | None:
    """The held-out item, the first by id, whose question is nearly what a user asked."""
    texts = [message["content"] or "" for message in messages if message["role"] == "user"]
    similar = (item for text in texts for item in _similar(shingles(word_hashes(words_of(text))), questions, threshold))
    return min(similar, default=None)


def _heldout(items: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(item id, question)."""
    for item in items:
        asked = [message["content"] for message in item["messages"] if message["role"] == "user"]
        if item["split"] == "heldout" and asked:
            yield item["item_id"], asked[-1]


def _sorted(found: Mapping[int, str]) -> tuple[Hashes, list[str]]:
    runs = sorted(found)
    return np.array(runs, np.uint64), [found[run] for run in runs]


def _similar(own: Hashes, questions: Questions, threshold: float) -> Iterator[str]:
    shared: dict[str, int] = {}
    for shingle in own.tolist():
        for item in questions.asked.get(shingle, ()):
            shared[item] = shared.get(item, 0) + 1
    for item, count in shared.items():
        if count >= threshold * (len(own) + questions.sizes[item] - count):
            yield item


def _near(file: Any, questions: Questions, threshold: float) -> Iterator[dict[str, str]]:
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(_BATCH, columns=["trajectory_id", "messages"]):
            for row in batch.to_pylist():
                yield from _found(row, questions, threshold)


def _found(row: Mapping[str, Any], questions: Questions, threshold: float) -> Iterator[dict[str, str]]:
    quoted = quoted_item(row["messages"], questions)
    near = asked_item(row["messages"], questions, threshold) if quoted is None else None
    if item := quoted or near:
        yield {"trajectory_id": row["trajectory_id"], "item_id": item, "how": "n-gram" if quoted else "near-duplicate"}
