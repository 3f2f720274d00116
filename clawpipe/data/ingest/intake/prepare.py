"""Redact records and convert them to columns: the part of ingest that runs in parallel processes.

It has two steps. `Preparer.batches` yields for each batch the `Claims` that determine the names of its records; `made` takes the
names (`Admitted`) and returns columns.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.logprobs import are_absent
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.data.forgotten.sources import KEY, PARENT
from clawpipe.data.forgotten.tombstones import Tombstones
from clawpipe.data.importers.read.labels import Label
from clawpipe.data.importers.read.reading import Record, Refusal
from clawpipe.data.importers.read.spread import earlier_name
from clawpipe.data.importers.read.survey import UNNAMED_SESSIONS
from clawpipe.data.importers.record import Conversation, Judgement, Kind, Preference, Prompt
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.ingest.intake.claims import Admitted, Claim, Claims, Name, Place
from clawpipe.data.ingest.intake.clean import Cleaner
from clawpipe.data.ingest.intake.dataset_writer import record_batch
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.pairs import check_pair, item_of, item_row, pair_id_of, pair_row
from clawpipe.data.ingest.intake.repeats import taught_turns, turn_digests, whole_digest
from clawpipe.data.ingest.intake.rows import (
    UNNAMED,
    Named,
    check,
    content_of,
    exported_row,
    kinds_of_row,
    messages_json,
    origin_of,
    rest_of,
    score_rows,
    task_of,
    trajectory_row,
)
from clawpipe.data.privacy.redact import Redactor


def check_record(record: Conversation | Preference | Prompt) -> None:
    """Check a record against its contract.

    Raises:
        RefusedError: with the contract's reason.
    """
    if isinstance(record, Conversation):
        check(record)
    elif isinstance(record, Preference):
        check_pair(record)
    elif not record.messages:
        raise RefusedError("messages: shorter than 1")


NAMES = ("trajectories", "scores", "preference_pairs", "task_items", "quarantine")
_ROWS, _CHARACTERS = 16384, 16 << 20  # a batch
_OBJECTS = 512  # rows that are objects before they become columns


@dataclass
class Made:
    """Columns by dataset, each with its size in bytes, and counts.

    Attributes:
        counts: trajectories, turns, side_turns, with_tokens, unnamed_policy, no_logprobs, no_ratio, lost_tokens (to a
            secret).
        of_files: turns, side_turns and with_session by file.
        redactions: how often each rule applied.
    """

    tables: dict[str, list[tuple[pa.RecordBatch, int]]] = field(default_factory=lambda: {name: [] for name in NAMES})
    counts: Counter[str] = field(default_factory=Counter)
    of_files: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    redactions: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows in the contract's columns."""
        if rows:
            columns = record_batch(rows, schema_of(name))
            self.tables[name].append((columns, columns.nbytes))

    def count(self, other: Made) -> None:
        """Add the counts of another one, without its columns."""
        self.counts += other.counts
        self.redactions += other.redactions
        for file, counts in other.of_files.items():
            self.of_files[file] += counts


@dataclass
class Batch:
    """Redacted records without names. `conversations` come with whether a secret was in their messages, and whether they had
    tokens."""

    claims: Claims
    conversations: list[tuple[Conversation, bool, bool]]
    pairs: list[Preference]
    prompts: list[Prompt]
    refused: list[Row]


class Preparer:
    """Prepares records. Not for use by several threads at once.

    Args:
        labelled: whether claims need the prompt.
    """

    def __init__(self, redact: Redactor, options: Options, forgotten: Tombstones, labelled: bool) -> None:
        self._cleaner, self._options, self._forgotten, self._labelled = Cleaner(redact), options, forgotten, labelled

    def batches(self, records: Iterable[Record]) -> Iterator[Batch]:
        """Yield the records in batches of bounded size; the last one is marked."""
        groups = _bounded(records)
        group = next(groups, [])
        while group:
            following = next(groups, [])
            yield self._batch(group, last=not following)
            group = following

    def cleaned(self, judgements: Sequence[Judgement]) -> list[Judgement]:
        """Return the judgements without secrets."""
        return self._cleaner.judgements(judgements)

    def made(self, batch: Batch, admitted: Admitted) -> Made:
        """Return the columns of the new records of a batch."""
        made = Made()
        new = [(each, name) for each, name in zip(batch.conversations, admitted.conversations, strict=True) if name]
        for start in range(0, len(new), _OBJECTS):
            self._add_conversations(made, new[start : start + _OBJECTS])
        user = self._options.user
        pairs = [(pair, name) for pair, name, new in zip(batch.pairs, batch.claims.pairs, admitted.pairs, strict=True) if new]
        made.add("preference_pairs", [pair_row(pair, name, user) for pair, name in pairs])
        prompts = zip(batch.prompts, batch.claims.prompts, admitted.prompts, strict=True)
        made.add("task_items", [item_row(prompt, name, place, user) for prompt, name, place in prompts if place is not None])
        made.add("quarantine", batch.refused)
        made.redactions, self._cleaner.found = self._cleaner.found, Counter()
        return made

    def _batch(self, records: Sequence[Record], last: bool) -> Batch:
        gone, kept = self._split_forgotten([one for one in records if isinstance(one, Conversation)])
        clean = self._cleaner.conversations(kept)
        pairs = [(pair, pair_id_of(pair)) for pair in records if isinstance(pair, Preference)]
        prompts = [(prompt, item_of(prompt.messages)) for prompt in records if isinstance(prompt, Prompt)]
        kept_pairs = [one for one in pairs if not self._is_forgotten_row(*one)]
        kept_prompts = [one for one in prompts if not self._is_forgotten_row(*one)]
        claims = Claims(
            [self._claim(before, after) for before, (after, _) in zip(kept, clean, strict=True)],
            [name for _, name in kept_pairs],
            [name for _, name in kept_prompts],
            [_place(one) for one in gone],
            len(pairs) + len(prompts) - len(kept_pairs) - len(kept_prompts),
            last,
        )
        return Batch(
            claims,
            [(after, changed, before.tokens is not None) for before, (after, changed) in zip(kept, clean, strict=True)],
            self._cleaner.pairs([pair for pair, _ in kept_pairs]),
            self._cleaner.prompts([prompt for prompt, _ in kept_prompts]),
            self._cleaner.values([self._refused(one) for one in records if isinstance(one, Refusal)]),
        )

    def _claim(self, before: Conversation, after: Conversation) -> Claim:
        named = bool(before.session) and before.session not in UNNAMED_SESSIONS and before.row is None
        row, earlier = before.row, _earlier_name(before) if named else None
        user, written = after.user or self._options.user, messages_json(before.messages)
        whole = written if after.messages is before.messages else messages_json(after.messages)
        return Claim(
            row["item_id"] if row else task_of(before),
            row["trajectory_id"] if row else None,
            None if row else content_of(before, written, self._options.user),
            before.session,
            turn_digests(after.session, user, after.messages) if named else [],
            whole_digest(after.session, user, whole) if named else 0,
            taught_turns(kinds_of_row(after), len(after.kinds)),
            _place(before),
            before.prompt if self._labelled else None,
            rest_of(before),
            earlier,
            turn_digests(earlier, user, after.messages) if earlier else [],
        )

    def _split_forgotten(self, conversations: Sequence[Conversation]) -> tuple[list[Conversation], list[Conversation]]:
        """Split the conversations into forgotten ones and others."""
        if not self._forgotten.stones:
            return [], [*conversations]
        parts: tuple[list[Conversation], list[Conversation]] = ([], [])
        for one in conversations:
            parts[not self._is_forgotten(one)].append(one)
        return parts

    def _is_forgotten(self, conversation: Conversation) -> bool:
        """Whether a conversation is forgotten, or continues a forgotten one, with whose messages it begins."""
        sessions = (conversation.session, _earlier_name(conversation), conversation.extra.get(PARENT))
        user = conversation.user or self._options.user
        return any(self._forgotten.covers(str(one) if one else None, user, _key_of(conversation)) for one in sessions)

    def _is_forgotten_row(self, record: Preference | Prompt, name: str) -> bool:
        user = record.user or self._options.user
        return self._forgotten.covers(record.session, user, _key_of(record)) or self._forgotten.covers_row(name)

    def _refused(self, refusal: Refusal) -> Row:
        last = f"-{refusal.line + refusal.lines - 1}" if refusal.lines > 1 else ""
        place = f"{refusal.file}:{refusal.line}{last}" + (f"@{refusal.offset}" if refusal.offset >= 0 else "")
        text = refusal.data.decode("utf-8", "replace")
        kept = "" if self._forgotten.mentioned_in(text) or self._forgotten.covers(None, self._options.user) else text
        return {"dataset": "trajectories", "row_id": place, "reasons": [refusal.reason], "row": kept}

    def _add_conversations(self, made: Made, new: Sequence[tuple[tuple[Conversation, bool, bool], Name]]) -> None:
        rows, scores = list[Row](), list[Row]()
        for (conversation, changed, had_tokens), name in new:
            named = Named(
                self._labelled_with(_known(conversation, name.known), name.label), name.trajectory_id, name.item_id, name.index
            )
            made.counts["lost_tokens"] += changed and had_tokens
            rows.append(self._row(made, named, changed))
            scores += score_rows(named)
        made.add("trajectories", rows)
        made.add("scores", scores)

    def _row(self, made: Made, named: Named, changed: bool) -> Row:
        conversation = named.conversation
        row = trajectory_row(named, self._options) if conversation.row is None else exported_row(conversation, changed)
        made.counts["trajectories"] += 1
        turns = conversation.turns
        for counts in (made.counts, of_file := made.of_files[origin_of(conversation).file]):
            counts["turns"] += turns.total()
            counts["side_turns"] += turns["side"]
        of_file["with_session"] += row["session_id"] not in UNNAMED_SESSIONS
        made.counts["with_tokens"] += row["tokens"] == "recorded"
        made.counts["unnamed_policy"] += row["policy_version"] == UNNAMED
        absent = row["tokens"] == "recorded" and are_absent(row.get("logprobs_kind"), row["logprobs"])
        made.counts["no_logprobs"] += absent
        made.counts["no_ratio"] += row.get("logprobs_kind") == "none" and not absent
        return row

    def _labelled_with(self, conversation: Conversation, label: Label | None) -> Conversation:
        """Add a label: as a judgement, or in `extra` if it has no score."""
        if label is None:
            return conversation
        if label.judgement is None:
            [fields] = self._cleaner.values([label.fields])
            return replace(conversation, extra=dict(conversation.extra) | {"label": fields})
        return replace(conversation, judgements=(*conversation.judgements, *self._cleaner.judgements([label.judgement])))


def _key_of(record: Conversation | Preference | Prompt) -> str | None:
    """Return the key with which a record was captured; None if it was not."""
    key = record.extra.get(KEY)
    return key if isinstance(key, str) else None


def _bounded(records: Iterable[Record]) -> Iterator[list[Record]]:
    group, characters = list[Record](), 0
    for record in records:
        group.append(record)
        characters += _size(record)
        if characters > _CHARACTERS or len(group) >= _ROWS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _size(record: Record) -> int:
    """Return the approximate number of characters of a record; a token counts as eight."""
    if isinstance(record, Refusal):
        return len(record.data)
    if isinstance(record, Preference):
        return sum(map(_characters, (record.prompt, record.chosen, record.rejected)))
    tokens = record.tokens if isinstance(record, Conversation) else None
    return _characters(record.messages) + (8 * len(tokens.ids) if tokens else 0)


def _characters(messages: Sequence[Message]) -> int:
    return sum(len(message.content) + sum(len(call.arguments) for call in message.tool_calls) for message in messages)


def _place(conversation: Conversation) -> Place:
    origin = origin_of(conversation)
    return origin.file, origin.line, conversation.lines


def _earlier_name(conversation: Conversation) -> str | None:
    return earlier_name(origin_of(conversation).file, conversation.session)


def _known(conversation: Conversation, turns: Sequence[int]) -> Conversation:
    """Make the turns at these places context."""
    kinds: tuple[Kind, ...] = tuple("side" if place in turns else kind for place, kind in enumerate(conversation.kinds))
    return replace(conversation, kinds=kinds) if turns else conversation
