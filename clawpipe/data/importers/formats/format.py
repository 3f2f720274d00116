"""What a format is: how a record of it is recognised, and the function that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.capture import Captured
from clawpipe.data.importers.formats.openclaw import JudgeRecord, TurnRecord
from clawpipe.data.importers.record import Conversation, Preference, Prompt
from clawpipe.data.importers.sources.lines import Line
from clawpipe.data.importers.strict_json import RefusedError

Part = Conversation | Preference | Prompt | TurnRecord | JudgeRecord | Captured
Made = TypeVar("Made")
ODD_SHAPE = "a record of a known program in a shape that is not known"  # a reason for a refusal
_UNEXPECTED = (TypeError, AttributeError, KeyError, IndexError, ValueError)
Tried = Literal["real files", "its library", "its schema"]  # what the shape of a format was tried on


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        fits: tells whether a record, the object on a line, has the format.
        read: reads one record; absent if a conversation spans several lines.
        read_line: reads one line, whose bytes count, instead of its record.
        join: reads all records of a file together, given the session that its name says; absent if each record stands alone.
        is_said: tells messages among the records of a file, if these may be of several sessions: then each message names its own.
        has_sessions: whether its records may name a session.
        about: what writes it, for the table of formats in the docs.
        marks: the fields by which a record is told; what a record of no known format lacks of them.
        tried: whether its shape was tried on real files, on what its library writes, or after its documented schema.
    """

    name: str
    fits: Callable[[JsonObject], bool]
    read: Callable[[JsonObject], Iterable[Part]] | None = None
    read_line: Callable[[Line], Part] | None = None
    join: Callable[[Sequence[JsonObject], str], Iterable[Conversation | Preference]] | None = None
    is_said: Callable[[JsonObject], bool] | None = None
    has_sessions: bool = False
    about: str = ""
    marks: tuple[str, ...] = ()
    tried: Tried = "real files"


def alone(read: Callable[[JsonObject], Part]) -> Callable[[JsonObject], Iterable[Part]]:
    """Return a reader of several parts from one of a single part."""
    return lambda record: (read(record),)


def guarded(known: Format) -> Format:
    """Return the format of another program, which may change any day: a record that surprises its reader is refused."""

    def fits(record: JsonObject) -> bool:
        try:
            return known.fits(record)
        except _UNEXPECTED:
            return False

    def read(record: JsonObject) -> Iterable[Part]:
        return _expected(lambda: list(known.read(record) if known.read else ()))

    def join(records: Sequence[JsonObject], session: str) -> Iterable[Conversation | Preference]:
        return _expected(lambda: list(known.join(records, session) if known.join else ()))

    return replace(known, fits=fits, read=read if known.read else None, join=join if known.join else None)


def _expected(read: Callable[[], list[Made]]) -> list[Made]:
    try:
        return read()
    except RefusedError:
        raise
    except _UNEXPECTED as error:
        raise RefusedError(ODD_SHAPE) from error
