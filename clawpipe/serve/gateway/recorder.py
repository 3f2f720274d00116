"""Group commit: one thread redacts and writes the records of many requests at once, and says when they are on the disk."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import shared_objects
from clawpipe.data.capture.records import Feedback, Record, Turn, line_of
from clawpipe.data.capture.segments import Segment, check_space
from clawpipe.data.forgotten.tombstones import Tombstones, known_tombstones, read_tombstones, tombstones_path
from clawpipe.data.privacy.redact import Redactor, redactor
from clawpipe.data.privacy.rules import rules_of
from clawpipe.data.privacy.values import redact_values
from clawpipe.errors import BusyError, ClawpipeError
from clawpipe.record.notifications.outbox import leave

log = logging.getLogger("clawpipe.gateway")
SEGMENT_BYTES = 64 << 20
_MOST = 512  # records in a group
_TICK_SECONDS = 0.5
_CHECK_SECONDS = 1.0
_ASK_SECONDS = 30.0  # between two looks at what other machines of the home have forgotten
_REDACTED = "a text of it was redacted"
FORGOTTEN, UNWRITABLE = "forgotten", "no line can hold it"  # why a record is never written
_FAULTS = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)  # of a record, not of the disk


class CaptureError(BusyError):
    """A record could not be written."""


@dataclass(frozen=True)
class Commit:
    """The size and cost of one group: records, bytes, and seconds of redaction and of writing."""

    records: int
    bytes: int
    redacting: float
    writing: float


_Waiting = tuple[Record, asyncio.Future[str | None]]


class Recorder:
    """Writes records to segments. `observe` is called with each group, on the recorder's thread.

    Attributes:
        fault: why nothing can be written now; None while all is well.
    """

    def __init__(self, home: Home, directory: Path, observe: Callable[[Commit], None] = lambda _: None) -> None:
        self._home, self._directory, self._observe = home, directory, observe
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._segment: Segment | None = None
        self._forgotten, self._stamp = Tombstones(), -1
        self._blind: str | None = None  # why the tombstones cannot be read
        self.fault: str | None = None
        self._told: str | None = None
        self._checked = -_CHECK_SECONDS
        self._check()
        self._ready, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder")
        self._thread.start()
        if shared_objects():
            threading.Thread(target=self._ask, name="tombstones", daemon=True).start()

    async def ready(self) -> None:
        """Return when the first record need not wait for the rules of redaction."""
        await asyncio.to_thread(self._ready.wait)

    async def write(self, record: Record) -> str | None:
        """Return None once the record is on the disk; why it never will be if its session or user was forgotten, or if it cannot be
        encoded.

        Raises:
            CaptureError: it could not be written.
        """
        done: asyncio.Future[str | None] = self._loop.create_future()
        self._queue.put((record, done))
        return await done

    async def close(self) -> None:
        """Write what waits, and end."""
        self._ended.set()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        with redactor(1, rules_of(self._home.root)) as redact:
            try:
                redact.texts(["a word"])  # loads the rules, which takes seconds, so that no turn waits for it
            finally:
                self._ready.set()
            while self._step(redact):
                pass
        if self._segment:
            self._segment.close()

    def _step(self, redact: Redactor) -> bool:
        """Write one group; returns whether there may be more."""
        group = _next_group(self._queue)
        try:
            self._follow_tombstones()
            self._blind = None
        except ClawpipeError as error:  # nobody can tell who was forgotten
            self._blind = error.what
        self._check()
        if waiting := [one for one in group if one]:
            self._commit(redact, waiting)
        if self.fault and self.fault != self._told:
            leave(self._home, "capture.failing", f"captured turns cannot be written: {self.fault}")
        self._told = self.fault
        return None not in group

    def _commit(self, redact: Redactor, waiting: Sequence[_Waiting]) -> None:
        reasons = [FORGOTTEN if self._is_forgotten(record) else None for record, _ in waiting]
        error: Exception | None = None
        try:
            self._write(redact, [record for record, _ in waiting], reasons)
            self.fault = None
        except OSError as failure:
            self.fault = failure.strerror or type(failure).__name__
            log.error("captured turns cannot be written: %s", self.fault)
            error = CaptureError(f"the turn could not be captured: {self.fault}")
        except Exception as failure:  # whatever happens, the requests must not wait for ever
            log.exception("a group of records could not be written")
            error = CaptureError(f"the turn could not be captured: {type(failure).__name__}")
        self._tell([future for _, future in waiting], reasons, error)

    def _write(self, redact: Redactor, records: Sequence[Record], reasons: list[str | None]) -> None:
        """Write the records without a reason against it. `reasons` gets one for each that cannot be encoded."""
        if self._blind:
            raise OSError(0, self._blind)
        began = time.perf_counter()
        places = [place for place, reason in enumerate(reasons) if reason is None]
        lines = dict(zip(places, encoded(redact, [records[place] for place in places]), strict=True))
        for place in (place for place, line in lines.items() if line is None):
            reasons[place] = UNWRITABLE
        data = b"".join(line for line in lines.values() if line is not None)
        redacted_at = time.perf_counter()
        self._append(data)
        self._observe(Commit(reasons.count(None), len(data), redacted_at - began, time.perf_counter() - redacted_at))

    def _append(self, lines: bytes) -> None:
        """Append to the segment. One that failed is not written to again, so what it holds stays as it is."""
        if not lines:
            return
        self._segment = self._segment or Segment(self._directory)
        try:
            self._segment.append(lines)
        except OSError:
            self._segment.abandon()
            self._segment = None
            raise
        if self._segment.size >= SEGMENT_BYTES:
            self.roll()

    def roll(self) -> None:
        """Close the segment; the next record begins another."""
        if self._segment:
            self._segment.close()
            self._segment = None

    def _tell(self, futures: Sequence[asyncio.Future[str | None]], reasons: Sequence[str | None], error: Exception | None) -> None:
        def tell() -> None:
            for future, reason in zip(futures, reasons, strict=True):
                if not future.done():  # its request may be gone
                    future.set_exception(error) if error else future.set_result(reason)

        with suppress(RuntimeError):  # the loop has ended: nobody waits
            self._loop.call_soon_threadsafe(tell)

    def _check(self) -> None:
        """Look for space, so that a request is refused before the engine is asked."""
        if time.monotonic() - self._checked < _CHECK_SECONDS:
            return
        self._checked = time.monotonic()
        try:
            check_space(self._directory, thoroughly=self.fault is not None)
            self.fault = self._blind
        except OSError as failure:
            self.fault = failure.strerror or type(failure).__name__

    def _ask(self) -> None:
        """Copy the list of all machines now and then, in a thread of its own: a slow or refusing storage keeps no turn waiting.

        The server has read it before it began. What is not heard of now is rejected by ingest.
        """
        while not self._ended.wait(_ASK_SECONDS):
            with suppress(ClawpipeError, OSError):
                read_tombstones(self._home)

    def _follow_tombstones(self) -> None:
        """Let the segment go when somebody has been forgotten, so that `clawpipe forget` can rewrite it."""
        with suppress(FileNotFoundError):
            stamp = tombstones_path(self._home).stat().st_mtime_ns
            if stamp != self._stamp:
                self._forgotten, self._stamp = known_tombstones(self._home), stamp
                self.roll()

    def _is_forgotten(self, record: Record) -> bool:
        names = [getattr(record, "session", None), getattr(record, "parent", None)]
        user, key = getattr(record, "user", None), getattr(record, "key", None)
        return any(self._forgotten.covers(name, user, key) for name in names)


def _next_group(waiting: queue.SimpleQueue[_Waiting | None]) -> list[_Waiting | None]:
    """Return all that waits, or what comes within a tick; None in it asks for the end."""
    group: list[_Waiting | None] = []
    with suppress(queue.Empty):
        group.append(waiting.get(timeout=_TICK_SECONDS))
        while len(group) < _MOST and group[-1] is not None:
            group.append(waiting.get_nowait())
    return group


def encoded(redact: Redactor, records: Sequence[Record]) -> list[bytes | None]:
    """Return the redacted lines of records; None for each that cannot be encoded, which harms no other."""
    try:
        return [line_of(record) for record in redacted(redact, records)]
    except _FAULTS:
        return [_encoded_alone(redact, record) for record in records]


def _encoded_alone(redact: Redactor, record: Record) -> bytes | None:
    try:
        [clean] = redacted(redact, [record])
        return line_of(clean)
    except _FAULTS as error:
        log.warning("a record cannot be encoded, and is left out: %s", type(error).__name__)
        return None


def redacted(redact: Redactor, records: Sequence[Record]) -> list[Record]:
    """Return the records without secrets. The tokens of a turn whose text held one would still spell it, and go, too."""
    texts: list[Any] = [_texts_of(record) for record in records]
    result = redact_values(redact, texts)
    cleaned = zip(records, result.values, result.changed, strict=True)
    return [_cleaned(record, value) if changed else record for record, value, changed in cleaned]


def _texts_of(record: Record) -> Any:
    match record:
        case Turn():
            return [record.request, [answer.message for answer in record.answers]]
        case Feedback():
            return [record.correction, record.comment]
        case _:
            return None


def _cleaned(record: Record, texts: Any) -> Record:
    if isinstance(record, Feedback):
        return msgspec.structs.replace(record, correction=texts[0], comment=texts[1])
    assert isinstance(record, Turn)
    request, messages = texts
    answers = [
        msgspec.structs.replace(answer, message=message, token_ids=None, logprobs=None)
        for answer, message in zip(record.answers, messages, strict=True)
    ]
    return msgspec.structs.replace(record, request=request, answers=answers, prompt_token_ids=None, no_tokens=_REDACTED)
