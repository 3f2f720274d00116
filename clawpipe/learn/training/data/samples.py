"""Read the `samples` dataset, with the token scores of other policies, into rows to train on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import Row
from clawpipe.core.config.training import Opd, Train
from clawpipe.core.contracts.logprobs import HIGHEST, LOWEST, UNSAMPLED
from clawpipe.errors import DataError
from clawpipe.learn.training.data.rows import Sample as Sample
from clawpipe.learn.training.data.rows import StoredRows
from clawpipe.learn.training.methods import loss_of, needs, weights_of

Streams = dict[str, np.ndarray]
_BATCH = 1024  # rows as Python objects at a time
MISSING, TOO_LONG = "token_scores_missing", "too_long"


def streams_of(train: Train, row: Mapping[str, Any], scores: Mapping[str, Any] | None, trained: np.ndarray) -> Streams | str:
    """Return the streams of a row, or why it cannot be trained on.

    Args:
        train: the method and its settings.
        row: a row of `samples`, lists as arrays [T].
        scores: the row of `token_scores`, lists as arrays over the true positions of the mask; None if there is none.
        trained: int [N], positions that carry loss, all within the mask.
    """
    if row.get("imitated"):
        return _imitated(train, row, trained)
    w_rl, _ = weights_of(train)
    streams = {"behaviour": _recorded(train, row)[trained], "advantages": np.float32(w_rl) * row["advantages"][trained]}
    if train.spec.critic:
        if row["rewards"] is None:
            return "rewards_missing"
        streams["rewards"] = row["rewards"][trained].astype(np.float32)
    wanted = needs(train)
    if not wanted:
        return streams
    if scores is None:
        return MISSING
    places = np.searchsorted(np.flatnonzero(row["loss_mask"]), trained)
    for name in sorted(wanted & {"reference", "proximal"}):
        if not _covers(scores[name], row["loss_mask"].sum()):
            return MISSING
        streams[name] = scores[name][places]
    return _with_teacher(train, streams, scores, places, row["loss_mask"].sum()) if "teacher" in wanted else streams


def _imitated(train: Train, row: Mapping[str, Any], trained: np.ndarray) -> Streams:
    """Return the streams of a row that no policy sampled: placeholders, but for the advantage 1, where a loss takes a ratio."""
    wanted, nothing = needs(train), np.zeros(len(trained), np.float32)
    streams = {"behaviour": nothing, "advantages": row["advantages"][trained]}
    streams |= dict.fromkeys([*(["rewards"] if train.spec.critic else []), *sorted(wanted & {"reference", "proximal"})], nothing)
    if "teacher" in wanted:
        streams["distil"] = nothing
        streams |= _compared(train.opd.top_k, None, trained) if train.opd.form == "topk" else {}
    return streams


def _recorded(train: Train, row: Mapping[str, Any]) -> np.ndarray:
    """Return the behaviour log-probs; zeros for sft, which uses none."""
    return np.zeros(len(row["logprobs"]), np.float32) if train.spec.likelihood else row["logprobs"].astype(np.float32)


def _covers(values: np.ndarray | None, count: int) -> bool:
    return values is not None and len(values) == count


def _with_teacher(train: Train, streams: Streams, scores: Mapping[str, Any], places: np.ndarray, count: int) -> Streams | str:
    w_rl, w_opd = weights_of(train)
    hinted = scores["hint"] is not None
    taught = np.full(count, hinted) if scores.get("taught") is None else scores["taught"]
    if not hinted and not w_rl:
        return "no_hint"
    if hinted and not (_is_complete(train.opd, scores, count) and len(taught) == count):
        return MISSING
    streams["distil"] = taught[places].astype(np.float32)
    if train.opd.form == "topk":
        return streams | _compared(train.opd.top_k, scores if hinted else None, places)
    if hinted:
        gain = np.clip(scores["teacher"][places] - streams["behaviour"], -train.opd.clip, train.opd.clip)
        streams["advantages"] = streams["advantages"] + np.float32(w_opd) * gain * streams["distil"]
    return streams


def _is_complete(opd: Opd, scores: Mapping[str, Any], count: int) -> bool:
    if opd.form == "token":
        return _covers(scores["teacher"], count)
    return scores["top_k"] == opd.top_k and all(_covers(scores[name], count * opd.top_k) for name in ("top_tokens", "top_teacher"))


def _compared(width: int, scores: Mapping[str, Any] | None, places: np.ndarray) -> Streams:
    """Return the streams [N, K]; a row without a hint gets finite placeholders without weight."""
    if scores is None:
        tokens, teacher = np.arange(width), np.full(width, -np.log(width + 1), np.float32)
        return {"top_tokens": np.tile(tokens, (len(places), 1)), "top_teacher": np.tile(teacher, (len(places), 1))}
    tokens, teacher = (scores[name].reshape(-1, width)[places] for name in ("top_tokens", "top_teacher"))
    return {"top_tokens": tokens.astype(np.int64), "top_teacher": teacher.astype(np.float32)}


COLUMNS = ["group_id", "token_ids", "loss_mask", "logprobs", "advantages", "temperature", "weight"]
_PARALLEL = ("token_ids", "loss_mask", "logprobs", "advantages", "rewards")
_SCORES = ["row_id", "reference", "proximal", "teacher", "top_k", "top_tokens", "top_teacher", "hint"]


class Readable(NamedTuple):
    """What a model can read: token ids below `vocabulary`, and rows of at most `longest` tokens; None: any."""

    vocabulary: int | None = None
    longest: int | None = None


def load_samples(
    paths: Sequence[str],
    train: Train,
    temperature: float,
    token_scores: Sequence[str] = (),
    readable: Readable = Readable(),  # noqa: B008  # a tuple
) -> tuple[StoredRows, dict[str, int]]:
    """Return the rows in stored order, and how many were filtered for each reason.

    Args:
        paths: Parquet files in the layout of the `samples` contract.
        train: decides the streams; sft trains on tokens of positive advantage only, and needs no behaviour log-probs.
        temperature: temperature of rows that recorded none (0: text that no policy sampled).
        token_scores: Parquet files of that contract, if the method `needs` them.
        readable: what the model can read.

    Raises:
        DataError: no row remains, or a file cannot be read.
    """
    scored = bool(needs(train))
    columns = COLUMNS + ["trajectory_id"] * scored + ["rewards"] * train.spec.critic
    scores = _Scores(read_rows(token_scores, _SCORES, ["taught"]) if scored else iter(()))
    rows = read_rows(paths, columns, ["policy_version"] if train.spec.uses_ratios else [])
    filtered = Counter[str]()

    def kept() -> Iterator[Sample]:
        for row in rows:
            result = _sample(row, scores.of(row["trajectory_id"]) if scored else None, train, temperature, readable)
            if isinstance(result, Sample):
                yield result
            else:
                filtered[result] += 1

    samples = StoredRows.of(kept())
    if not samples:
        raise DataError("no sample remains to train on", ", ".join(paths), f"filtered: {dict(filtered)}")
    return samples, dict(filtered)


class _Scores:
    """The rows of `token_scores` by id. They lie in the order of the samples, so few are in memory at a time."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows, self._ahead = rows, dict[str, Row]()
        self._last: tuple[str, Row | None] = ("", None)

    def of(self, name: str) -> Row | None:
        """Return the row with this id; None if there is none."""
        if name != self._last[0]:
            while name not in self._ahead and (row := next(self._rows, None)):
                self._ahead[row["row_id"]] = row
            self._last = (name, self._ahead.pop(name, None))
        return self._last[1]


def read_rows(paths: Sequence[str], columns: Sequence[str], later: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of Parquet files in order: lists as arrays, other values as Python objects, null as None.

    Args:
        later: columns that files of older versions lack; null there.

    Raises:
        DataError: a file cannot be read or lacks a column.
    """
    try:
        for path in paths:
            with pq.ParquetFile(path) as file:
                there = set(file.schema_arrow.names)
                if lacking := [name for name in columns if name not in there]:
                    raise KeyError(f"there is no column {lacking[0]!r}")
                for batch in file.iter_batches(_BATCH, columns=[name for name in (*columns, *later) if name in there]):
                    yield from _rows_of(batch, [name for name in later if name not in there])
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(f"rows cannot be read: {error}", ", ".join(paths), "run the step that made them again") from error


def _rows_of(batch: pa.RecordBatch, absent: Sequence[str]) -> Iterator[Row]:
    columns = {name: _values(batch.column(name)) for name in batch.schema.names}
    nothing = dict.fromkeys(absent)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True)) | nothing


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column: lists as arrays, other values as Python objects, null as None."""
    if not isinstance(column, pa.ListArray) or column.values.null_count:
        return [_plain(value) for value in column] if isinstance(column, pa.ListArray) else column.to_pylist()
    flat, ends = column.values.to_numpy(zero_copy_only=False), column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [flat[start:end] if there else None for there, (start, end) in zip(valid, pairwise(ends), strict=True)]


def _plain(value: Any) -> Any:
    return None if value.values is None else value.values.to_numpy(zero_copy_only=False)


def fault_of_tokens(ids: np.ndarray, trained: np.ndarray, readable: Readable) -> str | None:
    """Return why a row of token ids [T], with loss at `trained`, cannot be trained on or scored; None if it can."""
    if not len(trained):
        return "no_trained_tokens"
    if trained[0] == 0:
        return "first_token_has_no_predecessor"
    if ids.min() < 0 or (readable.vocabulary is not None and ids.max() >= readable.vocabulary):
        return "token_beyond_the_vocabulary"
    return TOO_LONG if readable.longest is not None and len(ids) > readable.longest else None


def _sample(row: Row, scores: Mapping[str, Any] | None, train: Train, temperature: float, readable: Readable) -> Sample | str:
    """Return the row as a sample, or why it cannot be trained on."""
    mask, advantages = row["loss_mask"].astype(bool), row["advantages"]
    if len({len(row[name]) for name in _PARALLEL if row.get(name) is not None}) > 1:
        return "lengths_differ"
    trained = np.flatnonzero(mask & (advantages > 0) if loss_of(train).objective == "sft" else mask)
    if fault := fault_of_tokens(row["token_ids"], trained, readable):
        return fault
    imitated = row.get("policy_version") == UNSAMPLED
    streams = streams_of(train, row | {"loss_mask": mask, "imitated": imitated}, scores, trained)
    if isinstance(streams, str):
        return streams
    if not all(np.isfinite(values).all() for values in (row["weight"], *streams.values())):
        return "not_finite"
    if not ((streams["behaviour"] >= LOWEST) & (streams["behaviour"] <= HIGHEST)).all():
        return "logprob_out_of_range"
    return Sample(
        group=str(row["group_id"]),
        token_ids=row["token_ids"],
        trained=trained,
        temperature=float(row["temperature"] or temperature),
        weight=float(row["weight"]),
        streams=streams,
        imitated=imitated,
    )
