"""Count the records of files, and warn of contents that would surprise a user in training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.table import FORMATS
from clawpipe.data.importers.read.reading import Reading, Record, Refusal
from clawpipe.data.importers.record import Conversation, Preference, Prompt, prompt_hash

UNNAMED_SESSIONS = (None, "", "unknown")  # session names that agents send for none


@dataclass
class Survey:
    """Counts of records. `first` holds the first refusal of each reason, `numbers` the scores of wholes that do not say success."""

    counts: Counter[str] = field(default_factory=Counter)
    status: Counter[str] = field(default_factory=Counter)
    scores: Counter[str] = field(default_factory=Counter)
    first: dict[str, Refusal] = field(default_factory=dict)
    numbers: list[float] = field(default_factory=list[float])
    _sessions: set[str] = field(default_factory=set)
    _owners: set[tuple[str, str]] = field(default_factory=set)
    _files: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        if isinstance(record, Refusal):
            self.first.setdefault(record.reason, record)
        elif isinstance(record, Preference):
            self.counts["preferences"] += 1
            self._owners.add(_owner(record))
        elif isinstance(record, Prompt):
            self.counts["prompts"] += 1
        else:
            self._add(record)

    def as_dict(self, reading: Reading) -> JsonObject:
        """Return all counts, with those of the lines: lines = accepted + sum of refused."""
        names = (
            "conversations",
            "preferences",
            "prompts",
            "with_tokens",
            "with_logprobs",
            "scored",
            "hinted",
            "calling",
            "tool_calls",
            "tool_errors",
        )
        return {
            "files": reading.files,
            "lines": reading.lines,
            "accepted": reading.accepted,
            "refused": reading.reasons(),
            "formats": dict(reading.formats),
            "sessions": len(self._sessions),
            "owners": len(self._owners),
            "turns": {"main": self.counts["main"], "side": self.counts["side"]},
            **{name: self.counts[name] for name in names},
            "silent": dict(reading.silent),
            "status": dict(self.status),
            "scores": dict(self.scores),
            "warnings": list(self.warnings(reading)),
        }

    def warnings(self, reading: Reading) -> Iterator[str]:
        """Yield warnings about whole files whose lines can all be read."""
        side = [file for file, counts in self._files.items() if counts["side"] and not counts["main"]]
        unnamed = [
            file for file, counts in self._files.items() if counts["unnamed"] and counts["unnamed"] == counts["may be named"]
        ]
        if side:
            yield f"{listed(side)}: every turn is a side turn: nothing of this would be trained on"
        if unnamed:
            yield f"{listed(unnamed)}: no session id in any record: chats cannot be told apart, limited or forgotten"
        yield from reading.warnings()
        if reading.unmatched:
            yield f"{reading.unmatched} judge records are about turns that are in none of the files"

    def _add(self, record: Conversation) -> None:
        kinds = record.turns
        self.counts.update(kinds)
        self.counts["conversations"] += 1
        self.counts["with_tokens"] += record.tokens is not None
        self.counts["with_logprobs"] += record.tokens is not None and record.tokens.logprobs is not None
        self.counts["scored"] += bool(record.judgements)
        self.counts["succeeded"] += any(one.success or (one.turn is not None and one.value > 0) for one in record.judgements)
        self.numbers += [one.value for one in record.judgements if one.success is None and one.turn is None][:1]
        self.counts["calling"] += any(message.tool_calls for message in record.messages)
        self.counts["hinted"] += any(judgement.hints for judgement in record.judgements)
        self.counts["tool_calls"] += record.tool_calls or 0
        self.counts["tool_errors"] += record.tool_errors or 0
        self.scores.update(judgement.origin for judgement in record.judgements)
        self.status[record.status or "unknown"] += 1
        self._owners.add(_owner(record))
        self._of_file(record, kinds)

    def _of_file(self, record: Conversation, kinds: Counter[Any]) -> None:
        named = record.session not in UNNAMED_SESSIONS
        if named:
            self._sessions.add(record.session or "")
        if record.origin:
            counts = self._files.setdefault(record.origin.file, Counter())
            counts.update(kinds)
            known = FORMATS.get(record.origin.format)
            if known and known.has_sessions:
                counts["may be named"] += 1
                counts["unnamed"] += not named


def _owner(record: Conversation | Preference) -> tuple[str, str]:
    """Return whose a record is: its user's, else its session's, else its prompt's."""
    if record.user or record.session:
        return ("user", record.user) if record.user else ("session", record.session or "")
    return "prompt", prompt_hash(record.prompt if isinstance(record, Conversation) else str(record.prompt))


def listed(files: list[str]) -> str:
    """Name the first file, and the number of the others."""
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
