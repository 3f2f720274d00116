"""Find trajectories near to a held-out question: a question that was trained on cannot measure learning.

There are two ways. A trajectory quotes a question: a message holds a number of its words in a row, or the whole question if it is
shorter. Or a user asked nearly the same: the exact Jaccard similarity of the shingles reaches the threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

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
    shingles: Hashes  # those of `asked`, sorted


class _Words(NamedTuple):
    """The hashes of the words of many conversations, in order; for each word where its text ends, and its conversation's number.

    Asking numpy about a thousand conversations at a time takes a sixth of the time of asking about each of their messages.
    """

    hashes: Hashes
    ends: np.ndarray
    owners: np.ndarray

    @classmethod
    def of(cls, conversations: Sequence[Sequence[Mapping[str, Any]]]) -> Self:
        """Return the words of all messages but the system's."""
        texts = [
            (owner, word_hashes(words_of(text)))
            for owner, messages in enumerate(conversations)
            for message in messages
            if message["role"] != "system"
            for text in texts_of(message)
        ]
        sizes = np.array([len(hashes) for _, hashes in texts], np.int64)
        owners = np.array([owner for owner, _ in texts], np.int64)
        hashes = np.concatenate([np.empty(0, np.uint64), *(hashes for _, hashes in texts)])
        return cls(hashes, np.repeat(np.cumsum(sizes), sizes), np.repeat(owners, sizes))

    def holding(self, size: int, runs: Hashes) -> Iterator[tuple[int, int]]:
        """Yield (conversation, place in `runs`) for each run of `size` words of one text that is among the sorted `runs`."""
        own = runs_of(self.hashes, size)
        if not len(own) or not len(runs):
            return
        is_of_one_text = np.arange(size, len(own) + size) <= self.ends[: len(own)]
        places = np.minimum(np.searchsorted(runs, own), len(runs) - 1)
        found = np.flatnonzero(is_of_one_text & (runs[places] == own))
        yield from zip(self.owners[found].tolist(), places[found].tolist(), strict=True)


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
    quoted = {size: _sorted(found) for size, found in runs.items()}
    return Questions(quoted, asked, sizes, np.array(sorted(asked), np.uint64))


def _quoted(words: _Words, questions: Questions) -> dict[int, str]:
    """Return for each conversation that quotes a held-out question the first item by id with one."""
    quoted: dict[int, str] = {}
    for size, (runs, items) in questions.quoted.items():
        for owner, place in words.holding(size, runs):
            quoted[owner] = min(quoted.get(owner, items[place]), items[place])
    return quoted


def _asked(messages: Sequence[Mapping[str, Any]], questions: Questions, threshold: float) -> str | None:
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
            rows = batch.to_pylist()
            said = [[message for part in parts for message in row[part] or ()] for row in rows]
            for place, (item_id, how) in near_items(said, questions, threshold):
                yield {"trajectory_id": rows[place][name], "item_id": item_id, "how": how}


def near_items(
    conversations: Sequence[Sequence[Mapping[str, Any]]], questions: Questions, threshold: float
) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield (place, (item id, how)) of each conversation that is near to a question."""
    words = _Words.of(conversations)
    quoted = _quoted(words, questions)
    for owner in sorted({*quoted, *(owner for owner, _ in words.holding(SHINGLE, questions.shingles))}):
        if owner in quoted:
            yield owner, (quoted[owner], "n-gram")
        elif item := _asked(conversations[owner], questions, threshold):
            yield owner, (item, "near-duplicate")
