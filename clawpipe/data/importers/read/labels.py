"""Read labels from a separate file and join them to conversations by their prompts.

    {"prompt": "...", "success": true, "difficulty": "easy"}
    {"prompt_hash": "9f86...", "occurrence": 1, "score": 0.5, "reason": "..."}

Batch rows keep only the prompt of their dataset's fields. A label names its prompt or the sha256 of it (16 or more digits), and the
attempt: `occurrence`, from 0, in the order of the data. Without `occurrence`, a prompt's only label applies to all attempts, and of
several labels the n-th to the n-th attempt. A label may score (`success`, `score`, `reward`). Its other fields become evidence; a
label without a score is kept in `extra`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.fields import Fields
from clawpipe.data.importers.record import Conversation, Judgement, prompt_hash
from clawpipe.data.importers.sources.lines import find_files, read_lines
from clawpipe.data.importers.strict_json import RefusedError, parse_object
from clawpipe.errors import DataError

_DIGITS = 16  # digits of a prompt's hash that are compared
_HASH = re.compile(r"[0-9a-fA-F]{16,64}")
_FIX = 'every line is an object with "prompt" or "prompt_hash", and for a score "success" (true or false) or "score" (a number)'


@dataclass(frozen=True)
class Label:
    """One label. `judgement` is None if it has no score."""

    judgement: Judgement | None
    fields: JsonObject


class Labels:
    """Labels by prompt and attempt."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, int], Label] = {}
        self._listed: dict[str, list[Label]] = {}
        self._used: set[int] = set()

    def add(self, row: JsonObject) -> None:
        """Add a label.

        Raises:
            RefusedError: the row is not a label, or contradicts an earlier one of the same attempt.
        """
        fields = Fields(row)
        key, occurrence = _key(fields), fields.take("occurrence", int, default=None)
        label = _label(fields)
        if occurrence is None:
            self._listed.setdefault(key, []).append(label)
        elif self._named.setdefault((key, occurrence), label) != label:
            raise RefusedError(f"another one of the same prompt and occurrence ({occurrence}) says something else")

    def of(self, prompt: str, attempt: int) -> Label | None:
        """Return the label of an attempt, counted from 0, at a prompt; None if there is none."""
        if not (self._named or self._listed):
            return None
        key = prompt_hash(prompt)[:_DIGITS]
        listed = self._listed.get(key, [])
        place = 0 if len(listed) == 1 else attempt
        found = self._named.get((key, attempt)) or (listed[place] if place < len(listed) else None)
        if found:
            self._used.add(id(found))
        return found

    @property
    def unused(self) -> int:
        """The number of labels that no conversation has used."""
        return len(self._named) + sum(map(len, self._listed.values())) - len(self._used)


def read_labels(paths: Sequence[str]) -> Labels:
    """Read labels from files, folders, patterns or tables.

    Raises:
        NotFoundError: a path matches nothing.
        DataError: a line is not a label; the error names it.
    """
    labels = Labels()
    for file in find_files(paths):
        for line in read_lines(file):
            try:
                labels.add(parse_object(line.data))
            except RefusedError as error:
                raise DataError(f"no label: {error}", f"{file}:{line.number}", _FIX) from None
    return labels


def join_labels(records: Iterable[Any], labels: Labels) -> Iterator[Any]:
    """Yield the records, conversations with their labels; attempts at a prompt are numbered in order."""
    attempts: Counter[str] = Counter()
    for record in records:
        if isinstance(record, Conversation):
            key = prompt_hash(record.prompt)
            label = labels.of(record.prompt, attempts[key])
            attempts[key] += 1
            record = _labelled(record, label) if label else record
        yield record


def _labelled(conversation: Conversation, label: Label) -> Conversation:
    if label.judgement:
        return replace(conversation, judgements=(*conversation.judgements, label.judgement))
    return replace(conversation, extra=dict(conversation.extra) | {"label": label.fields})


def _key(fields: Fields) -> str:
    prompt, digest = fields.take("prompt", str, default=None), fields.take("prompt_hash", str, default=None)
    if digest is None and prompt is None:
        raise RefusedError("neither prompt nor prompt_hash")
    digest = prompt_hash(prompt or "") if digest is None else digest
    if not _HASH.fullmatch(digest):
        raise RefusedError("prompt_hash: not 16 to 64 hexadecimal digits")
    return digest[:_DIGITS].lower()


def _label(fields: Fields) -> Label:
    success = fields.take("success", bool, default=None)
    score = fields.take("score", int, float, default=None)
    score = fields.take("reward", int, float, default=None) if score is None else score
    reason = fields.take("reason", str, default="label")
    if success is None and score is None:
        return Label(None, fields.rest)
    value = float(bool(success) if score is None else score)
    return Label(Judgement(value, "user", success, reason=reason, evidence=fields.rest), fields.rest)
