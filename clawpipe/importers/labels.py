"""Labels from a file beside the data, for batch rows, which keep of their data set's fields the prompt alone.

    {"prompt": "...", "success": true, "difficulty": "easy"}
    {"prompt_hash": "9f86...", "occurrence": 1, "score": 0.5, "reason": "..."}

A label names its prompt or the sha256 of it (16 or more of its digits), and which attempt at it is meant: `occurrence`, from 0, in
the order of the data. Without that, a prompt's only label holds for all attempts, and of several the n-th for the n-th. A label may
score (`success`, `score`, `reward`); whatever it holds is kept as evidence, or beside the conversation where it does not score.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clawpipe.errors import DataError
from clawpipe.importers.record import Conversation, Fields, Judgement, prompt_hash
from clawpipe.importers.sources.lines import find_files, read_lines
from clawpipe.importers.strict_json import RefusedError, parse_object

_DIGITS = 16  # of a hash that names a prompt
_HASH = re.compile(r"[0-9a-fA-F]{16,64}")
_FIX = 'every line is an object with "prompt" or "prompt_hash", and for a score "success" (true or false) or "score" (a number)'


@dataclass(frozen=True)
class Label:
    """One label. `judgement` is None where it does not score."""

    judgement: Judgement | None
    facts: dict[str, Any]


class Labels:
    """Labels by prompt and attempt."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, int], Label] = {}
        self._listed: dict[str, list[Label]] = {}
        self._met: set[int] = set()

    def add(self, row: dict[str, Any]) -> None:
        """One more label.

        Raises:
            RefusedError: it is none.
        """
        fields = Fields(row)
        key, occurrence = _key(fields), fields.take("occurrence", int, default=None)
        label = _label(fields)
        if occurrence is None:
            self._listed.setdefault(key, []).append(label)
        else:
            self._named[key, occurrence] = label

    def of(self, prompt: str, attempt: int) -> Label | None:
        """The label of an attempt, counted from 0, at a prompt; None where it has none."""
        if not (self._named or self._listed):
            return None
        key = prompt_hash(prompt)[:_DIGITS]
        listed = self._listed.get(key, [])
        place = 0 if len(listed) == 1 else attempt
        found = self._named.get((key, attempt)) or (listed[place] if place < len(listed) else None)
        if found:
            self._met.add(id(found))
        return found

    @property
    def unused(self) -> int:
        """Labels of attempts that were not met."""
        return len(self._named) + sum(map(len, self._listed.values())) - len(self._met)


def read_labels(paths: Sequence[str]) -> Labels:
    """Labels in files, folders, patterns or tables.

    Raises:
        NotFoundError: a path that matches nothing.
        DataError: a line is no label; it is named.
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
    """The records, conversations with their labels: attempts at a prompt are numbered as they come."""
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
    return replace(conversation, extra=dict(conversation.extra) | {"label": label.facts})


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
