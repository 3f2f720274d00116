"""Reject rows with token ids of another vocabulary: ids that the model does not know, or that decode to another text.

Tokens without log-probs may be what a harness has made of its text for a trainer. Of another vocabulary they say nothing, and their
row becomes text.
"""

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

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.contracts.text import text_only
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.errors import ConfigError
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.vocabulary import vocabulary_size

BEYOND, FOREIGN = "token beyond the vocabulary", "tokens of another vocabulary"
READ_AS_TEXT = "tokens of another vocabulary, read as text"
_LEAST_SHARE = 0.5  # least share of the message's letters that the decoded tokens must contain
_BATCH = 256
_COLUMNS = ["trajectory_id", "tokens", "token_ids", "turns", "messages", "logprobs"]
_WORD = re.compile(r"\w+")


def fit_vocabulary(store: Store, trajectories: DatasetRef, policy: ModelRef) -> StepResult:
    """Keep the rows with tokens of the policy's vocabulary, in order; text passes. If all are, return the dataset itself.

    Tokens are decoded turn by turn and compared with the recorded messages. A harness may have separated thoughts, markup and
    calls, so only words are compared, and half of their letters is enough: ids of another tokenizer match nearly none.

    Returns:
        output: the valid rows; extras: "quarantine", if a row was rejected; details: how many rows became text.

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
    details = {READ_AS_TEXT: filtered.pop(READ_AS_TEXT, 0)}
    refused = [row for file, found in zip(files, faults, strict=True) for row in _refused(trajectories.name, file, found)]
    if not refused:
        return StepResult(output=output, rows_in=trajectories.rows, rows_out=output.rows, details=details)
    quarantine = pa.Table.from_pylist(refused, schema=schema_of("quarantine"))
    extras = {"quarantine": publish_dataset(store, "quarantine", [quarantine], parents=parents)}
    return StepResult(
        output=output,
        extras=dict(extras),
        rows_in=trajectories.rows,
        rows_out=output.rows,
        filtered=dict(sorted(filtered.items())),
        details=details,
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
    return [_fault(row, tokenizer, vocabulary) if row["tokens"] == "recorded" else None for row in rows]


def _fault(row: Mapping[str, Any], tokenizer: Tokenizer, vocabulary: int) -> str | None:
    fault = fault_of(row, tokenizer, vocabulary)
    return READ_AS_TEXT if fault and not any(row["logprobs"]) else fault


def _kept(file: Path, faults: Sequence[str | None]) -> Iterator[pa.RecordBatch]:
    table = conformed(pq.read_table(file), schema_of("trajectories"))
    kept = table.filter(pa.array([fault in (None, READ_AS_TEXT) for fault in faults], pa.bool_()))
    if READ_AS_TEXT in faults:
        of_kept = [fault for fault in faults if fault in (None, READ_AS_TEXT)]
        rows = [_as_text(row) if fault else row for row, fault in zip(kept.to_pylist(), of_kept, strict=True)]
        kept = pa.Table.from_pylist(rows, schema=schema_of("trajectories"))
    yield from kept.combine_chunks().to_batches()


def _as_text(row: Row) -> Row:
    """Return a row without its tokens; replies before the first sampled turn are context."""
    replies = sum(message["role"] == "assistant" for message in row["messages"])
    kinds = [turn["kind"] for turn in row["turns"]][-replies:]
    return row | text_only(["side"] * (replies - len(kinds)) + kinds)


def _refused(dataset: str, file: Path, faults: Sequence[str | None]) -> Iterator[Row]:
    rows = pq.read_table(file).filter(pa.array([fault not in (None, READ_AS_TEXT) for fault in faults], pa.bool_())).to_pylist()
    reasons = (fault for fault in faults if fault not in (None, READ_AS_TEXT))
    for row, fault in zip(rows, reasons, strict=True):
        yield {"dataset": dataset, "row_id": row["trajectory_id"], "reasons": [fault], "row": json.dumps(row, ensure_ascii=False)}
