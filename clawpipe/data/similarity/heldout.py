"""Find trajectories near to a held-out question: a question that was trained on cannot measure learning.

There are two ways. A trajectory quotes a question: a message holds a number of its words in a row, or the whole question if it is
shorter. Or a user asked nearly the same: the exact Jaccard similarity of the shingles reaches the threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.words import words_of
from clawpipe.core.config.curation import Near
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset, read_dataset
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.data.curation.joined_tables import LAYOUTS
from clawpipe.data.similarity.words import SHINGLE, Hashes, runs_of, shingles, texts_of, word_hashes

SCHEMA = LAYOUTS["near_heldout"]  # of several items, the first by id
_BATCH = 1024  # rows in memory at a time
_WHOLE, _SIDES = ("messages",), ("prompt", "chosen", "rejected")  # columns with the messages of a trajectory, and of a pair


@dataclass(frozen=True)
class Questions:
    """An index of held-out questions.

    Args:
        quoted: for each number of words, the sorted hashes of all runs of that length, and the item of each.
        asked: the items by the shingles of their questions.
        sizes: the number of distinct shingles of each item's question.
    """

    quoted: Mapping[int, tuple[Hashes, Sequence[str]]]
    asked: Mapping[int, Sequence[str]]
    sizes: Mapping[str, int]


def near_heldout(store: Store, trajectories: DatasetRef, items: DatasetRef, config: Near) -> StepResult:
    """Find the rows that are near to a held-out item of `items`, one row each: a quotation first, else a near-duplicate.

    Questions of fewer than five words are left out; curation always compares whole questions.

    Args:
        trajectories: trajectories, or preference pairs, which are named by their ids in place of a trajectory's.

    Returns:
        output: `near_heldout` of layout SCHEMA, in the order of the rows. details: how many of each kind.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    questions = prepare(read_dataset(store, items).to_pylist(), config.heldout_words)
    rows = [row for file in dataset_files(store, trajectories) for row in _near(file, questions, config.threshold)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    parents = [trajectories.digest, items.digest]
    output = publish_dataset(store, "near_heldout", rechunk(table.to_batches(), SCHEMA), parents=parents)
    kinds = {how: sum(row["how"] == how for row in rows) for how in ("n-gram", "near-duplicate")}
    return StepResult(output=output, rows_in=trajectories.rows, rows_out=output.rows, details=kinds)


def prepare(items: Iterable[Mapping[str, Any]], words: int) -> Questions:
    """Index the questions of the held-out items; a question is an item's last user message."""
    runs: dict[int, dict[int, str]] = {}
    asked: dict[int, list[str]] = {}
    sizes: dict[str, int] = {}
    for item_id, question in sorted(_heldout(items)):
        hashes = word_hashes(words_of(question))
        if len(hashes) < SHINGLE:
            continue
        size = min(words, len(hashes))
        for run in runs_of(hashes, size).tolist():
            runs.setdefault(size, {}).setdefault(run, item_id)
        own = shingles(hashes)
        sizes[item_id] = len(own)
        for shingle in own.tolist():
            asked.setdefault(shingle, []).append(item_id)
    return Questions({size: _sorted(found) for size, found in runs.items()}, asked, sizes)


def quoted_item(messages: Sequence[Mapping[str, Any]], questions: Questions) -> str | None:
    """Return the first held-out item by id with a question that any message quotes; None if there is none."""
    hashed = [word_hashes(words_of(text)) for message in messages if message["role"] != "system" for text in texts_of(message)]
    found = [
        items[place]
        for hashes in hashed
        for size, (runs, items) in questions.quoted.items()
        for place in _places(runs, runs_of(hashes, size))
    ]
    return min(found, default=None)


def _places(runs: Hashes, asked: Hashes) -> list[int]:
    """Return where the asked ones stand in `runs`, which are sorted: `np.isin` would sort all of them anew for each message."""
    places = np.minimum(np.searchsorted(runs, asked), len(runs) - 1)
    return places[runs[places] == asked].tolist()


def asked_item(messages: Sequence[Mapping[str, Any]], questions: Questions, threshold: float) -> str | None:
    """Return the first held-out item by id with a question near to a user message; None if there is none."""
    texts = [message["content"] or "" for message in messages if message["role"] == "user"]
    similar = (item for text in texts for item in _similar(shingles(word_hashes(words_of(text))), questions, threshold))
    return min(similar, default=None)


def _heldout(items: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield (item id, question) of the held-out items."""
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
        is_pair = "pair_id" in parquet.schema_arrow.names
        name, parts = ("pair_id", _SIDES) if is_pair else ("trajectory_id", _WHOLE)
        for batch in parquet.iter_batches(_BATCH, columns=[name, *parts]):
            for row in batch.to_pylist():
                messages = [message for part in parts for message in row[part] or ()]
                yield from _found(row[name], messages, questions, threshold)


def _found(name: str, messages: Sequence[Mapping[str, Any]], questions: Questions, threshold: float) -> Iterator[dict[str, str]]:
    quoted = quoted_item(messages, questions)
    near = asked_item(messages, questions, threshold) if quoted is None else None
    if item := quoted or near:
        yield {"trajectory_id": name, "item_id": item, "how": "n-gram" if quoted else "near-duplicate"}
