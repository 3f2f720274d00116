"""The rows that are annotated: samples, or the sides of preference pairs, and their hinted twins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from clawpipe.config.training import Opd
from clawpipe.messages import Message
from clawpipe.policy.hints import Hint, hinted_ids, hinted_messages, hints_by_trajectory
from clawpipe.policy.renderer import Renderer
from clawpipe.training.annotate_request import AnnotateRequest, Hindsight
from clawpipe.training.samples import Sample, read_rows

_SAMPLE = ["trajectory_id", "item_id", "group_id", "token_ids", "loss_mask", "prompt_tokens", "temperature"]
_SIDES = ("chosen", "rejected")
_PAIR = ["pair_id", "item_id", "group_id", "prompt_tokens", "temperature", "tokens"]
_STREAMS = [f"{side}_{stream}" for side in _SIDES for stream in ("token_ids", "loss_mask")]


@dataclass(frozen=True)
class Row:
    """One row of the result. `sample` is None where it holds nothing that could be scored; `fault` then says why."""

    row_id: str
    item_id: str
    prompt_tokens: int
    sample: Sample | None
    fault: str = ""


@dataclass
class Hinted:
    """The twins of a row, one a candidate, or why it has none."""

    twins: dict[int, Sample] = field(default_factory=dict)
    reason: str = ""


def load_rows(request: AnnotateRequest) -> list[Row]:
    """The rows in stored order; each pair's chosen side, then its rejected one.

    Raises:
        DataError: a file cannot be read.
    """
    if request.kind == "samples":
        return [_row(row, row["trajectory_id"], "", request.temperature) for row in read_rows(request.rows, _SAMPLE)]
    pairs = read_rows(request.rows, [*_PAIR, *_STREAMS])
    return [_row(row, f"{row['pair_id']}/{side}", f"{side}_", request.temperature) for row in pairs for side in _SIDES]


def _row(row: dict[str, Any], row_id: str, prefix: str, temperature: float) -> Row:
    prompt = row["prompt_tokens"] or 0
    sample = _sample(row, prefix, temperature)
    if isinstance(sample, str):
        return Row(row_id, row["item_id"], prompt, None, sample)
    return Row(row_id, row["item_id"], prompt, sample)


def _sample(row: dict[str, Any], prefix: str, temperature: float) -> Sample | str:
    """What is scored, or why there is nothing; the trainer sets the same rows aside, under the same names."""
    ids, mask = row[f"{prefix}token_ids"], row[f"{prefix}loss_mask"]
    if row.get("tokens") == "none":
        return "text_only"
    if len(ids) != len(mask):
        return "lengths_differ"
    trained = np.flatnonzero(mask)
    if not len(trained):
        return "no_trained_tokens"
    if trained[0] == 0:
        return "first_token_has_no_predecessor"
    return Sample(str(row["group_id"]), ids, trained, float(row["temperature"] or temperature), 1.0, {})


class HintedRows:
    """Puts hints into rows.

    Args:
        renderer: of the policy that sampled the rows.
        preamble: what every prompt of the environment begins with.
        config: the form of hints.
        context: tokens that the teacher can hold.
    """

    def __init__(self, renderer: Renderer, preamble: Sequence[Message], hindsight: Hindsight, config: Opd, context: int) -> None:
        self._renderer, self._preamble, self._config, self._context = renderer, list(preamble), config, context
        self._questions = _questions(hindsight.items)
        self._hints = hints_by_trajectory(_read(hindsight.scores, ["trajectory_id", "turn", "hints", "demonstration"]), config)

    def of(self, row: Row) -> Hinted:
        """The row behind each hinted prompt: the recorded tokens stand where the unhinted prompt ended, and so do trained ones."""
        if row.sample is None:
            return Hinted(reason=row.fault)
        hints, question = self._hints.get(row.row_id), self._questions.get(row.item_id)
        if not hints:
            return Hinted(reason="no hint")
        if question is None:
            return Hinted(reason="task item unknown")
        if self._prompt(row, question, None) != row.sample.token_ids.tolist():
            return Hinted(reason="prompt is not the task item's")
        twins = {index: self._twin(row, question, hint) for index, hint in enumerate(hints)}
        short = {index: twin for index, twin in twins.items() if len(twin.token_ids) <= self._context}
        return Hinted(short, "" if short else "hinted prompt too long")

    def _twin(self, row: Row, question: Sequence[Message], hint: Hint) -> Sample:
        assert row.sample is not None
        ids = np.asarray(self._prompt(row, question, hint))
        return replace(row.sample, token_ids=ids, trained=row.sample.trained + len(ids) - len(row.sample.token_ids))

    def _prompt(self, row: Row, question: Sequence[Message], hint: Hint | None) -> list[int]:
        assert row.sample is not None
        told = hinted_messages(question, hint, self._config.repeats)
        return hinted_ids(self._renderer, [*self._preamble, *told], row.sample.token_ids.tolist(), row.prompt_tokens)


def _questions(items: Sequence[str]) -> Mapping[str, list[Message]]:
    rows = _read(items, ["item_id", "messages"])
    return {row["item_id"]: [Message.from_dict(message) for message in row["messages"]] for row in rows}


def _read(files: Sequence[str], columns: list[str]) -> Iterator[dict[str, Any]]:
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(columns=columns):
            yield from batch.to_pylist()
