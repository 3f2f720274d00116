"""Read files of any known format into conversations, preferences and prompts, and refuse other lines with a reason.

The content of a line determines its format. Always accepted + refused = lines: a line is one record, which may hold several
conversations (a group), or a part of one (a turn of a session, or a judge's record of it).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.records import is_line
from clawpipe.data.capture.settings import IDLE_SECONDS
from clawpipe.data.importers.formats.answered import unread_answers
from clawpipe.data.importers.formats.chat_fast_path import FAST_FORMAT, read_fast
from clawpipe.data.importers.formats.table import FORMATS, Format, Part
from clawpipe.data.importers.read.checked import check_part, columns_like_outcomes
from clawpipe.data.importers.read.hints import shape_of
from clawpipe.data.importers.read.joining import Check, Joining, Turn
from clawpipe.data.importers.read.mapping import Mapping as FieldMapping
from clawpipe.data.importers.read.reading import Reading, Record, Refusal
from clawpipe.data.importers.read.spelled_columns import unspelled_columns
from clawpipe.data.importers.read.spread import AFTER_A_GAP, Spread, by_session, session_of, split_at_gap
from clawpipe.data.importers.read.user import AUTO, formats_of
from clawpipe.data.importers.read.wrapping import Wrapping, called_in, is_held
from clawpipe.data.importers.record import Conversation, Origin, Preference, Prompt
from clawpipe.data.importers.sources.foreign import ForeignFileError
from clawpipe.data.importers.sources.lines import UNREADABLE, BrokenOffError, Line, Place, find_files, read_lines, shown
from clawpipe.data.importers.strict_json import BLANK, RefusedError, parse_object

NO_FORMAT = "no known format"  # a reason for a refusal
_BEGINNING = Place()
_NO_MAPPING = FieldMapping()


class DeferredLineError(Exception):
    """A line that cannot be read alone: it needs the lines of all files (`args[0]` is "sessions"), or all lines of its file
    ("spread")."""


Leave = Literal["sessions", "spread"]


def read_stream(
    paths: Sequence[str],
    format: str = AUTO,
    reading: Reading | None = None,
    after: Mapping[str, Place] | None = None,
    mapping: FieldMapping = _NO_MAPPING,
) -> Iterator[Record]:
    """Yield the records of files, folders, patterns or standard input ("-") in the order of files and lines.

    Turns of sessions are joined over all files, with the judge records of all files; joined sessions come last.

    Args:
        format: "auto", a name in `FORMATS` or `FAMILIES`, or a reference to a user's format; lines of other formats are refused.
        reading: receives the counts, but no records.
        after: places by file name where to begin, from `Reading.places` of an earlier run.
        mapping: field paths of records in another form; empty for known formats.

    Raises:
        NotFoundError: a path matches nothing.
        ConfigError: the format does not exist.
    """
    files = find_files(paths)
    reader = Reader(format, reading, mapping=mapping)
    return _stream(reader, files, after or {})


def _stream(reader: Reader, files: Sequence[str], after: Mapping[str, Place]) -> Iterator[Record]:
    for file in files:
        yield from reader.file(file, after.get(file, Place()))
    yield from reader.sessions()


class Reader:
    """Reads files one after the other, and joins sessions of several files at the end.

    Args:
        format: as for `read_stream`.
        reading: receives the counts.
        check: a further check of each record; its RefusedError refuses the line.
        mapping: field paths of records in another form.
        idle: seconds without a turn after which a captured session has ended.

    Attributes:
        joining: the turns of sessions in all files.
        wrapping: what repeats calls of its trace, if these are recorded.
        left: lines that `file` left to a reader of all files, by their kind.

    Raises:
        ConfigError: the format does not exist.
    """

    def __init__(
        self,
        format: str = AUTO,
        reading: Reading | None = None,
        check: Check | None = None,
        mapping: FieldMapping = _NO_MAPPING,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self.reading = Reading() if reading is None else reading
        self._check = check
        self._format, self._allowed = format, formats_of(format)
        if mapping.says_what_was_said and format == AUTO:  # the fields of another program may be left beside what was mapped
            self._allowed = [known for known in self._allowed if not known.about]
        self._mapping = mapping
        self._takes_fast_path = FORMATS[FAST_FORMAT] in self._allowed and not mapping
        self.joining, self.wrapping = Joining(self.reading, check, idle), Wrapping(self.reading, check)
        self._spread: dict[str, list[tuple[JsonObject, Line]]] = {}  # records of this file that are joined at its end, by format
        self.left: dict[Leave, list[Line]] = {"sessions": [], "spread": []}
        self._leaves: frozenset[Leave] = frozenset()

    def file(
        self,
        file: str,
        start: Place = _BEGINNING,
        known_as: str | None = None,
        end: Place | None = None,
        leaving: Collection[Leave] = (),
    ) -> Iterator[Record]:
        """Yield the records of one file from `start` on, without the turns of sessions.

        Args:
            known_as: the name of the file in the records; `file` by default.
            end: where to stop: the beginning of the first line that is not read.
            leaving: kinds of lines that go to `left` and do not count as read.
        """
        self._leaves, self.left = frozenset(leaving), {"sessions": [], "spread": []}
        yield from _runs_joined(self._file(file, start, shown(known_as or file), end))

    def lines(self, lines: Iterable[Line]) -> Iterator[Record]:
        """Yield the records of lines of one file that another reader left, joined where they are spread."""
        self._leaves = frozenset()
        self._spread.clear()
        for line in lines:
            yield from self._line(line)
        yield from self._all_joined()

    def _file(self, file: str, start: Place, name: str, end: Place | None) -> Iterator[Record]:
        self.reading.files += 1
        self.reading.places[name] = start
        number, broken_off = start.lines, False
        self._spread.clear()
        try:
            for line in read_lines(file, start.offset, start.lines, name, end.offset if end else None):
                number = line.number
                yield from self._elements(line)
        except UNREADABLE as error:
            self.reading.lines += 1
            offset = self.reading.places[name].offset
            yield self.reading.count_refusal(Refusal(name, number + 1, offset, f"file cannot be read on: {_kind(error)}"))
            broken_off = isinstance(error, BrokenOffError)
        if self._spread:
            self.reading.places[name] = _BEGINNING  # later lines may continue these records: the file is read again
        yield from self._all_joined()
        if broken_off:
            del self.reading.places[name]

    def _all_joined(self) -> Iterator[Record]:
        for format, records in self._spread.items():
            whole, behind = split_at_gap(records)
            known = next(known for known in self._allowed if known.name == format)
            for session, part in by_session(whole, known.is_said) if whole else ():
                yield from self._joined(known, part, session)
            for _, line in behind:
                yield self.reading.refuse(line, RefusedError(AFTER_A_GAP))

    def _joined(self, known: Format, records: Spread, named: str | None) -> Iterator[Record]:
        """Join the records of a session; if that fails, refuse each of their lines. The file names it if they do not."""
        first = records[0][1]
        origin = Origin(known.name, first.file, first.number)
        try:
            assert known.join is not None
            session = named or session_of(first.file)
            found = known.join([record for record, _ in records], session)
            made = [replace(part, lines=len(records)) if isinstance(part, Conversation) else part for part in found]
            yield from self._whole(made, origin, first)
        except (RefusedError, RecursionError) as error:
            for _, line in records:
                yield self.reading.refuse(line, error)

    def sessions(self, stored: Collection[str] = (), called: Collection[str] = ()) -> Iterator[Record]:
        """Yield the conversations of the turns in all files, see `Joining.joined`, and those of spans without calls.

        Args:
            called: names of the traces of which calls are stored already.
        """
        yield from self.wrapping.released(self.reading.traces | set(called))
        yield from self.joining.joined(stored)

    def _line(self, line: Line) -> Iterator[Record]:
        if not line.ended and is_line(line.data):
            return  # a gateway is writing it
        if line.ended:
            self.reading.places[line.file] = Place(line.number, line.end)
        try:
            records = self._records(line)
        except DeferredLineError as error:
            self.left[error.args[0]].append(line)
            return
        except (RefusedError, RecursionError) as error:
            self.reading.lines += 1
            yield self.reading.refuse(line, error)
            return
        self.reading.lines += 1
        if not line.ended:  # a whole object cannot continue
            self.reading.places[line.file] = Place(line.number, line.end)
        yield from records

    def _elements(self, line: Line) -> Iterator[Record]:
        """Yield the records of a line: of each element of its list, where the mapping leads to one."""
        try:
            lines = self._mapping.elements(line)
        except (RefusedError, RecursionError) as error:
            self.reading.lines += 1
            yield self.reading.refuse(line, error)
            return
        for one in lines:
            yield from self._line(one)

    def _records(self, line: Line) -> list[Conversation | Preference | Prompt]:
        """Return the records of a line, which is accepted or refused as a whole."""
        if (
            self._takes_fast_path
            and line.whole
            and (conversation := read_fast(line.data, Origin(FAST_FORMAT, line.file, line.number)))
        ):
            self.reading.formats[FAST_FORMAT] += 1
            return [self.reading.silenced(conversation)]
        known, record = self._parsed(line)
        if known.read_line:
            found = self._whole((known.read_line(line),), Origin(known.name, line.file, line.number), line)
        elif known.read is None:
            if "spread" in self._leaves:
                raise DeferredLineError("spread")
            self._spread.setdefault(known.name, []).append((record, line))
            found = []
        else:
            found = self._whole(known.read(record), Origin(known.name, line.file, line.number), line)
        self.reading.formats[known.name] += 1
        return found

    def _parsed(self, line: Line) -> tuple[Format, JsonObject]:
        """Parse a line and find its format.

        Raises:
            RefusedError: the line is not a record.
        """
        if line.fault:
            raise RefusedError(line.fault)
        if not line.whole:
            raise RefusedError("line too long")
        parsed = parse_object(line.data)
        record = unspelled_columns(self._mapping.applied(parsed) if self._mapping else parsed)
        known = next((known for known in self._allowed if known.fits(record)), None)
        if known is None:
            self.reading.count_unknown(shape_of(record, self._allowed))
            raise RefusedError(NO_FORMAT if self._format == AUTO else f"not of the format {self._format}")
        return known, record

    def _whole(self, parts: Iterable[Part], origin: Origin, line: Line) -> list[Conversation | Preference | Prompt]:
        """Check all parts and return those that stand alone; parts of sessions, and spans that wrap calls, are kept for the end."""
        whole: list[Conversation | Preference | Prompt] = []
        listed = list(parts)
        for part in listed:
            check_part(part)
            if not isinstance(part, Turn) and not is_held(part):
                whole.append(replace(part, origin=origin))
                if self._check:
                    self._check(whole[-1])
        turns = [part for part in listed if isinstance(part, Turn)]
        held = [replace(part, origin=origin) for part in listed if isinstance(part, Conversation) and is_held(part)]
        if (turns or held) and "sessions" in self._leaves:
            raise DeferredLineError("sessions")
        for part in turns:
            self.joining.add(part, origin)
        self.wrapping.add(held, line, whole=not (whole or turns))
        self.reading.traces.update(filter(None, map(called_in, whole)))
        self.reading.outcomes.update(name for one in whole[:1] for name in columns_like_outcomes(one))
        self.reading.answers.update(name for one in whole if isinstance(one, Prompt) for name in unread_answers(one.extra))
        return [self.reading.silenced(one) if isinstance(one, Conversation) else one for one in whole]


def _kind(error: Exception) -> str:
    if isinstance(error, ForeignFileError):
        return str(error)
    return f"download broke off ({error})" if isinstance(error, BrokenOffError) else type(error).__name__


def _runs_joined(records: Iterator[Record]) -> Iterator[Record]:
    """Merge runs of blank lines into one refusal: a file may have millions."""
    first, count = None, 0
    for record in records:
        blank = record if isinstance(record, Refusal) and record.reason == BLANK else None
        if first and blank and blank.line == first.line + count:
            count += 1
            continue
        if first:
            yield replace(first, lines=count)
        first, count = blank, 1
        if not blank:
            yield record
    if first:
        yield replace(first, lines=count)
