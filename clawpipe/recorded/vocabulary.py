"""Reject rows with token ids of another vocabulary: ids that the model does not know, or that decode to another text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from clawpipe.contracts.schema import conformed, schema_of
from clawpipe.errors import ConfigError
from clawpipe.json_types import Row
from clawpipe.policy.spec import policy_spec
from clawpipe.policy.vocabulary import vocabulary_size
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, publish_dataset
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult

BEYOND, FOREIGN = "token beyond the vocabulary", "tokens of another vocabulary"
_LEAST_SHARE = 0.5  # least share of the message's letters that the decoded tokens must contain
_BATCH = 256
_COLUMNS = ["trajectory_id", "tokens", "token_ids", "turns", "messages"]
_WORD = re.compile(r"\w+")


def fit_vocabulary(store: Store, trajectories: DatasetRef, policy: ModelRef) -> StepResult:
    """Keep the rows with tokens of the policy's vocabulary, in order; text passes. If none is rejected, return the dataset itself.

    Tokens are decoded turn by turn and compared with the recorded messages. A harness may have separated thoughts, markup and
    calls, so only words are compared, and half of their letters is enough: ids of another tokenizer match nearly none.

    Returns:
        output: the valid rows; extras: "quarantine", if a row was rejected.

    Raises:
        ConfigError: the model has no tokenizer.json, or its config.json lacks the size of its vocabulary.
        DataError: a dataset, or the base model, is missing or damaged.
    """
    files, model = dataset_files(store, trajectories), Path(policy_spec(store, policy).base)
    tokenizer, known = _tokenizer(model), vocabulary_size(model)
    faults = [_faults(file, tokenizer, known) for file in files]
    filtered = Counter(fault for found in faults for fault in found if fault)
    if not filtered:
        return StepResult(output=trajectories, rows_in=trajectories.rows, rows_out=trajectories.rows)
    parents = [trajectories.digest, policy.digest]
    kept = (batch for file, found in zip(files, faults, strict=True) for batch in _kept(file, found))
    output = publish_dataset(store, trajectories.name, rechunk(kept, schema_of("trajectories")), parents=parents)
    refused = [row for file, found in zip(files, faults, strict=True) for row in _refused(trajectories.name, file, found)]
    quarantine = pa.Table.from_pylist(refused, schema=schema_of("quarantine"))
    extras = {"quarantine": publish_dataset(store, "quarantine", [quarantine], parents=parents)}
    return StepResult(
        output=output,
        extras=dict(extras),
        rows_in=trajectories.rows,
        rows_out=output.rows,
        filtered=dict(sorted(filtered.items())),
    )


def fault_of(row: Mapping[str, Any], tokenizer: Tokenizer, vocabulary: int) -> str | None:
    """Return the reason why recorded tokens are not of this vocabulary; None if they may be.

    Args:
        row: a row of `trajectories`, with token_ids, turns and messages.
    """
    if max(row["token_ids"]) >= vocabulary:
        return BEYOND
    replies = [message for message in row["messages"] if message["role"] == "assistant"]
    found = total = 0
    for message, turn in zip(reversed(replies), reversed(row["turns"]), strict=False):  # turns are the last assistant messages
        spelled = tokenizer.decode(row["token_ids"][turn["start"] : turn["end"]], skip_special_tokens=False).lower()
        words = _WORD.findall(_text_of(message).lower())
        total += sum(map(len, words))
        found += sum(len(word) for word in words if word in spelled)
    return FOREIGN if found < _LEAST_SHARE * total else None


def _text_of(message: Mapping[str, Any]) -> str:
    calls = [f"{call['name']} {call['arguments']}" for call in message["tool_calls"] or ()]
    return "\n".join([message["content"], *calls])


def _tokenizer(model: Path) -> Tokenizer:
    file = model / "tokenizer.json"
    if not file.is_file():
        raise ConfigError("the model ships no tokenizer.json", str(model), "use a model that does")
    return Tokenizer.from_file(str(file))


def _faults(file: Path, tokenizer: Tokenizer, vocabulary: int) -> list[str | None]:
    """Return the fault of each row of a file."""
    rows = (row for batch in pq.ParquetFile(file).iter_batches(_BATCH, columns=_COLUMNS) for row in batch.to_pylist())
    return [fault_of(row, tokenizer, vocabulary) if row["tokens"] == "recorded" else None for row in rows]


def _kept(file: Path, faults: Sequence[str | None]) -> Iterator[pa.RecordBatch]:
    table = conformed(pq.read_table(file), schema_of("trajectories"))
    yield from table.filter(pa.array([fault is None for fault in faults], pa.bool_())).combine_chunks().to_batches()


def _refused(dataset: str, file: Path, faults: Sequence[str | None]) -> Iterator[Row]:
    rows = pq.read_table(file).filter(pa.array([fault is not None for fault in faults], pa.bool_())).to_pylist()
    for row, fault in zip(rows, filter(None, faults), strict=True):
        yield {"dataset": dataset, "row_id": row["trajectory_id"], "reasons": [fault], "row": json.dumps(row, ensure_ascii=False)}
