"""Read files of any known format: conversations, and every line that is none with its reason.

The format of a line is told by its content. accepted + refused = lines, always: a line is one record, which may hold several
conversations (a group), or a part of one (a turn of a session, a judge's opinion of it).
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import zstandard

from clawpipe.importers.atropos import is_atropos, read_atropos
from clawpipe.importers.chat import is_chat, read_chat
from clawpipe.importers.hermes import is_hermes, read_hermes
from clawpipe.importers.openclaw import JudgeRecord, TurnRecord, is_judge, is_turn, join_sessions, read_judge, read_turn
from clawpipe.importers.record import Conversation, Judgement
from clawpipe.importers.source import Line, find_files, read_lines
from clawpipe.importers.strict import RefusedError, parse_object

FORMATS: dict[str, Callable[[dict[str, Any]], bool]] = {  # asked in this order
    "openclaw-turn": is_turn,
    "openclaw-judge": is_judge,
    "atropos": is_atropos,
    "hermes": is_hermes,
    "chat": is_chat,
}


@dataclass(frozen=True)
class Refusal:
    """A line that was set aside."""

    file: str
    line: int
    offset: int
    reason: str


@dataclass
class Reading:
    """What was found in files so far."""

    files: int = 0
    lines: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    conversations: list[Conversation] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    _turns: list[TurnRecord] = field(default_factory=list)
    _judged: dict[tuple[str, int], list[Judgement]] = field(default_factory=dict)

    def reasons(self) -> dict[str, int]:
        return dict(Counter(refusal.reason for refusal in self.refused))


def read_files(paths: Sequence[str]) -> Reading:
    """Everything in files, folders, patterns or standard input ("-").

    Turns of sessions are put together over all files, and judged by all judges' records among them.

    Raises:
        NotFoundError: a path that matches nothing.
    """
    reading = Reading()
    for file in find_files(paths):
        reading.files += 1
        for line in _lines(file, reading):
            reading.lines += 1
            try:
                _read(line, reading)
            except RefusedError as error:
                reading.refused.append(Refusal(file, line.number, line.offset, str(error)))
    reading.conversations += join_sessions(reading._turns, reading._judged)
    return reading


def _lines(file: str, reading: Reading) -> Iterator[Line]:
    """Lines as far as the file can be read; what is wrong with the rest of it is one refusal, of a line of its own."""
    number = 0
    try:
        for line in read_lines(file):
            number = line.number
            yield line
    except (OSError, EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        reading.lines += 1
        reading.refused.append(Refusal(file, number + 1, -1, f"file cannot be read on: {type(error).__name__}"))


def _read(line: Line, reading: Reading) -> None:
    if not line.whole:
        raise RefusedError("line too long")
    record = parse_object(line.data)
    kind = next((name for name, fits in FORMATS.items() if fits(record)), None)
    if kind is None:
        raise RefusedError("no known format")
    found = _records(kind, record, line)
    reading.formats[kind] += 1
    for part in found:
        if isinstance(part, TurnRecord):
            reading._turns.append(part)
        elif isinstance(part, JudgeRecord):
            reading._judged.setdefault((part.session, part.turn), []).append(part.judgement)
        else:
            reading.conversations.append(part)


def _records(kind: str, record: dict[str, Any], line: Line) -> list[Conversation | TurnRecord | JudgeRecord]:
    if kind == "atropos":
        return list(read_atropos(record, f"{line.file}:{line.number}"))
    readers: dict[str, Callable[[dict[str, Any]], Conversation | TurnRecord | JudgeRecord]] = {
        "openclaw-turn": read_turn,
        "openclaw-judge": read_judge,
        "hermes": read_hermes,
        "chat": read_chat,
    }
    return [readers[kind](record)]
