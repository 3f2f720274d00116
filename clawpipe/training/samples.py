"""Read the `samples` dataset into rows that can be trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset

from clawpipe.errors import DataError

COLUMNS = ["group_id", "token_ids", "loss_mask", "logprobs", "advantages", "temperature", "weight"]


@dataclass(frozen=True)
class Sample:
    """One row. `trained` lists the N positions of `token_ids` that carry loss, in order, and never holds position 0.

    `streams` are parallel to the trained tokens, [N] or [N, K], by name; log-probs are in nats at `temperature`. Every row
    of a batch has the same ones. Which a loss reads is said in clawpipe.training.losses.
    """

    group: str
    token_ids: np.ndarray  # int [T]
    trained: np.ndarray  # int [N]
    temperature: float
    weight: float
    streams: Mapping[str, np.ndarray]


def load_samples(paths: Sequence[str], objective: str, temperature: float) -> tuple[list[Sample], dict[str, int]]:
    """Rows in stored order, and how many were set aside for which reason.

    Args:
        paths: Parquet files in the layout of the `samples` contract.
        objective: of the loss; `sft` trains on tokens of positive advantage only, and needs no behaviour log-probs.
        temperature: for rows that recorded none (0: text that nobody sampled).

    Raises:
        DataError: no row is left, or a file cannot be read.
    """
    results = [_sample(row, objective, temperature) for row in _read(paths)]
    samples = [result for result in results if isinstance(result, Sample)]
    set_aside = dict(Counter(result for result in results if isinstance(result, str)))
    if not samples:
        raise DataError("no sample is left to train on", ", ".join(paths), f"set aside: {set_aside}")
    return samples, set_aside


def _read(paths: Sequence[str]) -> Iterable[Any]:
    """Rows as dicts of NumPy arrays."""
    try:
        table = pa.concat_tables([pq.read_table(path, columns=COLUMNS) for path in paths])
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"samples cannot be read: {error}", ", ".join(paths), "run the step that made them again") from error
    return iter(Dataset(table).with_format("numpy"))


def _sample(row: dict[str, Any], objective: str, temperature: float) -> Sample | str:
    """The row as a sample, or why it cannot be one."""
    mask, advantages, behaviour = row["loss_mask"].astype(bool), row["advantages"], row["logprobs"]
    if not len(row["token_ids"]) == len(mask) == len(advantages) == len(behaviour):
        return "lengths_differ"
    trained = np.flatnonzero(mask & (advantages > 0) if objective == "sft" else mask)
    if not len(trained):
        return "no_trained_tokens"
    if trained[0] == 0:
        return "first_token_has_no_predecessor"
    needed = [row["weight"], *advantages[trained], *(behaviour[trained] if objective != "sft" else [])]
    if not np.isfinite(needed).all():
        return "not_finite"
    return Sample(
        group=str(row["group_id"]),
        token_ids=row["token_ids"],
        trained=trained,
        temperature=float(row["temperature"]) or temperature,
        weight=float(row["weight"]),
        streams={"behaviour": behaviour[trained].astype(np.float32), "advantages": advantages[trained].astype(np.float32)},
    )
