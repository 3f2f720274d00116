"""Load the rows to annotate, samples or sides of preference pairs, and put hints into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from clawpipe.core.config.methods import Opd
from clawpipe.core.conversation.messages import Message
from clawpipe.learn.annotation.request import AnnotateRequest, Hindsight
from clawpipe.learn.training.data.samples import Readable, Sample, fault_of_tokens, read_rows
from clawpipe.model.policy.hints import Hint, hinted_ids, hinted_messages, hinted_turn, hints_by_trajectory, hints_by_turn
from clawpipe.model.policy.layout import longest_at
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.vocabulary import vocabulary_size

_SAMPLE = ["trajectory_id", "item_id", "group_id", "token_ids", "loss_mask", "prompt_tokens", "temperature"]
_SIDES = ("chosen", "rejected")
_PAIR = ["pair_id", "item_id", "group_id", "prompt_tokens", "temperature", "tokens"]
_STREAMS = [f"{side}_{stream}" for side in _SIDES for stream in ("token_ids", "loss_mask")]


class Turn(NamedTuple):
    """A trained turn: its number, as in scores, and the range of its tokens in the row."""

    turn: int
    start: int
    end: int


@dataclass(frozen=True)
class Row:
    """One row of the result. `sample` is None if it cannot be scored; `fault` then holds the reason."""

    row_id: str
    item_id: str
    prompt_tokens: int
    sample: Sample | None
    fault: str = ""
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class Part:
    """The part of a row that has hints.

    Attributes:
        places: int [n], indices among the row's N trained tokens.
        hinted: the row after each candidate hint, with these tokens as trained ones.
    """

    places: np.ndarray
    hinted: dict[int, Sample]


@dataclass
class Hinted:
    """The parts of a row with hints, or the reason why there are none; where parts overlap, the later one counts."""

    parts: list[Part] = field(default_factory=list)
    reason: str = ""


def load_rows(request: AnnotateRequest) -> list[Row]:
    """Load the rows in stored order; each pair's chosen side, then its rejected one.

    Raises:
        DataError: a file cannot be read.
    """
    bases = {Path(policy.base) for policy in request.policies.values()}
    known = Readable(min(map(vocabulary_size, bases)), min(map(longest_at, bases)))
    if request.kind == "samples":
        return [
            _row(row, row["trajectory_id"], "", request.temperature, known) for row in read_rows(request.rows, _SAMPLE, ["turns"])
        ]
    pairs = read_rows(request.rows, [*_PAIR, *_STREAMS])
    return [_row(row, f"{row['pair_id']}/{side}", f"{side}_", request.temperature, known) for row in pairs for side in _SIDES]


def _row(row: Mapping[str, Any], row_id: str, prefix: str, temperature: float, readable: Readable) -> Row:
    prompt = row["prompt_tokens"] or 0
    sample = _sample(row, prefix, temperature, readable)
    if isinstance(sample, str):
        return Row(row_id, row["item_id"], prompt, None, sample)
    turns = row.get("turns")
    return Row(row_id, row["item_id"], prompt, sample, turns=tuple(Turn(**turn) for turn in (() if turns is None else turns)))


def _sample(row: Mapping[str, Any], prefix: str, temperature: float, readable: Readable) -> Sample | str:
    """Return the sample to score, or the reason why there is none; the trainer filters the same rows for the same reasons."""
    ids, mask = row[f"{prefix}token_ids"], row[f"{prefix}loss_mask"]
    if row.get("tokens") == "none":
        return "text_only"
    if len(ids) != len(mask):
        return "lengths_differ"
    trained = np.flatnonzero(mask)
    if fault := fault_of_tokens(ids, trained, readable):
        return fault
    return Sample(str(row["group_id"]), ids, trained, float(row["temperature"] or temperature), 1.0, {})


class Prompts(NamedTuple):
    """How an environment's prompts are written.

    Attributes:
        renderer: of the policy that sampled the rows, with the environment's tools.
        preamble: the first messages of every prompt.
    """

    renderer: Renderer
    preamble: Sequence[Message]


class Question(NamedTuple):
    """A task item's own messages, and the label of its environment."""

    messages: list[Message]
    environment: str


class HintedRows:
    """Puts hints into rows.

    Args:
        prompts: by the label of the environment; the first one stands for those of tasks from elsewhere.
        config: the form of hints.
        context: context length of the teacher in tokens.
    """

    def __init__(self, prompts: Mapping[str, Prompts], hindsight: Hindsight, config: Opd, context: int) -> None:
        self._prompts, self._config, self._context = prompts, config, context
        self._questions = _questions(hindsight.items)
        scores = list(_read(hindsight.scores, ["trajectory_id", "turn", "hints", "demonstration"]))
        self._hints, self._by_turn = hints_by_trajectory(scores, config), hints_by_turn(scores, config)

    def of(self, row: Row) -> Hinted:
        """Return the whole row after its hints, and each turn after the hints for that turn."""
        if row.sample is None:
            return Hinted(reason=row.fault)
        whole, by_turn = self._hints.get(row.row_id), self._by_turn.get(row.row_id, {})
        found = [self._whole(row, row.sample, whole)] if whole else []
        found += [self._turn(row, row.sample, turn, by_turn[turn.turn]) for turn in row.turns if turn.turn in by_turn]
        parts = [part for part in found if isinstance(part, Part)]
        reasons = [part for part in found if isinstance(part, str)] or ["no hint"]
        return Hinted(parts, "" if parts else reasons[0])

    def _whole(self, row: Row, sample: Sample, hints: Sequence[Hint]) -> Part | str:
        """Put the row's recorded tokens after each prompt with a hint."""
        question = self._questions.get(row.item_id)
        if question is None:
            return "task item unknown"
        if self._prompt(row, question, None) != sample.token_ids.tolist():
            return "prompt is not the task item's"
        return self._part(np.arange(len(sample.trained)), [self._hinted(row, question, hint) for hint in hints])

    def _turn(self, row: Row, sample: Sample, turn: Turn, hints: Sequence[Hint]) -> Part | str:
        """Put each hint before the turn, after the recorded tokens up to it."""
        places = np.flatnonzero((sample.trained >= turn.start) & (sample.trained < turn.end))
        hinted = []
        for hint in hints:
            found = hinted_turn(self._of(row).renderer, hint, sample.token_ids.tolist(), turn.start, turn.end)
            if found is None:
                return "turn without a header"
            ids, moved = found
            hinted.append(replace(sample, token_ids=np.asarray(ids), trained=sample.trained[places] + moved))
        return self._part(places, hinted)

    def _part(self, places: np.ndarray, hinted: Sequence[Sample]) -> Part | str:
        short = {index: sample for index, sample in enumerate(hinted) if len(sample.token_ids) <= self._context}
        return Part(places, short) if short else "hinted prompt too long"

    def _of(self, row: Row) -> Prompts:
        """Return how the prompts of a row's environment are written."""
        question = self._questions.get(row.item_id)
        own = self._prompts.get(question.environment) if question else None
        return own or next(iter(self._prompts.values()))

    def _hinted(self, row: Row, question: Question, hint: Hint) -> Sample:
        assert row.sample is not None
        ids = np.asarray(self._prompt(row, question, hint))
        return replace(row.sample, token_ids=ids, trained=row.sample.trained + len(ids) - len(row.sample.token_ids))

    def _prompt(self, row: Row, question: Question, hint: Hint | None) -> list[int]:
        assert row.sample is not None
        messages, prompts = hinted_messages(question.messages, hint, self._config.repeats), self._of(row)
        return hinted_ids(prompts.renderer, [*prompts.preamble, *messages], row.sample.token_ids.tolist(), row.prompt_tokens)


def _questions(items: Sequence[str]) -> Mapping[str, Question]:
    rows = _read(items, ["item_id", "messages", "environment"])
    return {row["item_id"]: Question(list(map(Message.from_dict, row["messages"])), row["environment"]) for row in rows}


def _read(files: Sequence[str], columns: list[str]) -> Iterator[Mapping[str, Any]]:
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(columns=columns):
            yield from batch.to_pylist()
