"""Shorten long conversations of a dataset to a budget of tokens, for imitation: a dataset in, the same with shorter rows out.

A row that is shortened has no recorded tokens any more, because nobody sampled what it now says: it is text, and is rendered anew.
`extra` says what was cut, under `NOTE`: the tokens before and after, the places of the messages that a summary stands for, the
number of each turn that is left, by which scores name it, and what users had asked in the part that was cut, so that a held-out
question is found there, too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config.curation import Compress
from clawpipe.core.config.environment import Played
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.text import RendererOf, opening_of, renderers
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.openings import Opening, opening_for, openings
from clawpipe.play.recorded.notes import NOTE
from clawpipe.play.recorded.shorten import Count, Shortened, shorten

_BATCH = 64
_NO_TOKENS: Row = {
    "tokens": "none",
    "token_ids": [],
    "loss_mask": [],
    "logprobs": [],
    "turns": [],
    "prompt_tokens": 0,
} | dict.fromkeys(("rendered_ids", "rendered_mask", "rendered_logprobs", "rendered_policy", "logprobs_kind"))
_NOT_FITTING = "what has to stay is too long"
_NOT_WRITTEN = "calls cannot be written"

Summarise = Callable[[Sequence[Message]], str | None]  # None: it has no summary


def compress_rows(
    store: Store,
    trajectories: DatasetRef,
    policy: ModelRef,
    environment: Played,
    config: Compress,
    budget: int,
    summarise: Summarise | None = None,
) -> StepResult:
    """Shorten the rows that are longer than the budget. A row that cannot be shortened stays as it is, and is counted.

    Args:
        policy: whose tokenizer and format count the tokens.
        budget: tokens of a whole conversation as it is trained on.
        summarise: makes a summary of messages in place of the rule.

    Returns:
        output: `trajectories`, the given dataset where no row was shortened; details: `compressed`, how many rows were, and by how
        much; `not_compressed`, how many could not be, by reason.

    Raises:
        DataError: a dataset, or the base model, is missing or damaged.
    """
    spec = policy_spec(store, policy)
    tokenizer, known = load_tokenizer(Path(spec.base)), openings(environment)
    renderers_of = {opening.label: renderers(tokenizer, spec.tool_call_format, opening.specs()) for opening in known}
    work = _Work(renderers_of, known, config, budget, summarise)
    files = dataset_files(store, trajectories)
    batches = (work.done(batch) for file in files for batch in pq.ParquetFile(file).iter_batches(_BATCH))
    parents = [trajectories.digest, policy.digest]
    made = publish_dataset(store, trajectories.name, rechunk(batches, schema_of("trajectories")), parents=parents)
    output = made if work.changed else trajectories
    return StepResult(output=output, rows_in=trajectories.rows, rows_out=output.rows, details=work.details())


@dataclass
class _Work:
    renderers_of: Mapping[str, RendererOf]
    known: Sequence[Opening]
    config: Compress
    budget: int
    summarise: Summarise | None
    _sums: Counter[str] = field(default_factory=Counter)
    _failed: Counter[str] = field(default_factory=Counter)

    def done(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        table = conformed(pa.Table.from_batches([batch]), schema_of("trajectories"))
        rows = [self._row(row) for row in table.to_pylist()]
        return pa.Table.from_pylist(rows, table.schema).combine_chunks().to_batches()[0]

    @property
    def changed(self) -> bool:
        return self._sums["rows"] > 0

    def details(self) -> JsonObject:
        return {"compressed": dict(self._sums), "not_compressed": dict(self._failed)}

    def _row(self, row: Row) -> Row:
        messages = tuple(map(Message.from_dict, row["messages"]))
        count = self._count(row, messages)
        try:
            before = len(row["token_ids"]) if row["tokens"] == "recorded" else count(messages)
            if before <= self.budget:
                return row
            short = self._shortened(messages, count)
        except (ValueError, TypeError, AttributeError):  # a name that the format cannot write
            self._failed[_NOT_WRITTEN] += 1
            return row
        if short is None:
            self._failed[_NOT_FITTING] += 1
            return row
        self._sums.update(rows=1, tokens=before - short.tokens, messages=len(short.cut), tool_results=short.results)
        return compressed_row(row, messages, short, before)

    def _count(self, row: Row, messages: Sequence[Message]) -> Count:
        opening = opening_for(self.known, row["environment"])
        renderer, shown = opening_of(row["tools"], messages, self.renderers_of[opening.label], opening.messages())
        return lambda some: len(renderer.render_with_mask([*shown, *some])[0])

    def _shortened(self, messages: Sequence[Message], count: Count) -> Shortened | None:
        keep = self.config.keep_first, self.config.keep_last
        if self.summarise is None:
            return shorten(messages, self.budget, count, *keep)
        roomy = shorten(messages, self.budget - self.config.summary_tokens, count, *keep)
        short = roomy or shorten(messages, self.budget, count, *keep)
        if short is None or not short.cut:
            return short
        text = self.summarise([messages[place] for place in short.cut])
        better = _fitting(short, text, count, self.budget) if text else None
        self._sums["summaries_by_rule"] += better is None
        return better or short


def _fitting(short: Shortened, text: str, count: Count, budget: int) -> Shortened | None:
    """Return the conversation with a summary, or as much of its beginning as there is room for; None if that is nothing."""
    while text:
        tried = short.with_summary(f"[Summary of {len(short.cut)} messages that are left out here] {text}", count)
        if tried.tokens <= budget:
            return tried
        text = text[: len(text) * 3 // 4]
    return None


def compressed_row(row: Row, messages: Sequence[Message], short: Shortened, before: int) -> Row:
    """Return a row with a shorter conversation, and a note of what was cut."""
    kinds, numbers = _turns(row, messages)
    kept = [place for place in short.places if place in kinds]
    note = {
        "tokens": [before, short.tokens],
        "messages": list(short.cut),
        "tool_results": short.results,
        "turns": [numbers[place] for place in kept if kinds[place] == "main"],
        "asked": [messages[place].content for place in short.cut if messages[place].role == "user"],
    }
    extra = json.loads(row["extra"] or "{}") | {NOTE: note}
    said = {"messages": [message.as_dict() for message in short.messages], "kinds": [kinds[place] for place in kept]}
    rewards = row["turn_rewards"] and [row["turn_rewards"][numbers[place]] for place in kept if numbers[place] >= 0]
    return row | _NO_TOKENS | said | {"turn_rewards": rewards, "extra": json.dumps(extra, ensure_ascii=False)}


def _turns(row: Row, messages: Sequence[Message]) -> tuple[dict[int | None, str], dict[int | None, int]]:
    """Return the kind and the number of each assistant message, by its place. Turns of rollouts are numbered from the policy's
    first one, others among all assistant messages.
    """
    replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
    told: list[str] = [turn["kind"] for turn in row["turns"] or ()] if row["tokens"] == "recorded" else row["kinds"] or []
    shown = len(replies) - len(told) if told else 0  # in the prompt
    kinds = ["side"] * shown + (told or ["main"] * len(replies))
    first = shown if row["source"] == "rollout" else 0
    return dict(zip(replies, kinds, strict=True)), {place: number - first for number, place in enumerate(replies)}
