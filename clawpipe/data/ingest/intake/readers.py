"""Run the processes that read pieces in parallel, and take their answers in the order of the pieces."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import IO, Self

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.system import processes
from clawpipe.data.ingest.intake.claims import Admitted, Claims
from clawpipe.data.ingest.intake.pieces import Piece
from clawpipe.data.ingest.intake.prepare import NAMES, Made
from clawpipe.data.ingest.intake.wire import Columns, Failed, Found, Setup, receive, send
from clawpipe.errors import BusyError, error_from

_Answer = Claims | Columns | Found | Failed
Admit = Callable[[Piece, Claims], Admitted]


class Turns:
    """Lets numbered threads pass one after the other, from 0 on."""

    def __init__(self) -> None:
        self._next, self._over, self._changed = 0, False, threading.Condition()

    def wait(self, number: int) -> None:
        """Wait until all lower numbers have passed.

        Raises:
            BusyError: another thread has given up.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._next >= number or self._over)
            if self._over:
                raise BusyError("reading was given up", fix="run it again")

    def passed(self, number: int) -> None:
        with self._changed:
            self._next = max(self._next, number + 1)
            self._changed.notify_all()

    def give_up(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()


class Readers:
    """Processes that read pieces. A context manager that ends them. As many threads as processes may call it."""

    def __init__(self, count: int, setup: Setup) -> None:
        self.count, self._setup, self._admitting, self._keeping = count, setup, Turns(), Turns()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._free: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._failing = threading.Lock()
        self._cause: BaseException | None = None

    def read(self, number: int, piece: Piece, admit: Admit, keep: Callable[[Made], None]) -> Found:
        """Read piece number `number`.

        `admit` and `keep` are called in the order of pieces and their batches.

        Raises:
            BusyError: a process was killed.
            ClawpipeError: the error of the first process that failed.
        """
        process = self._free.get()
        try:
            return self._read(process, number, piece, admit, keep)
        except BaseException as error:
            with self._failing:
                self._cause = self._cause or error
            self._give_up()
            raise self._cause from None
        finally:
            self._free.put(process)

    def _read(
        self, process: subprocess.Popen[bytes], number: int, piece: Piece, admit: Admit, keep: Callable[[Made], None]
    ) -> Found:
        _ask(process, piece)
        while True:
            match _answer(process):
                case Claims() as claims:
                    self._admitting.wait(number)
                    _ask(process, admit(piece, claims))
                    if claims.last:
                        self._admitting.passed(number)
                case Columns() as columns:
                    made = columns.made({name: schema_of(name) for name in NAMES})
                    self._keeping.wait(number)
                    keep(made)
                case Found() as found:
                    for turns in (self._admitting, self._keeping):
                        turns.wait(number)
                        turns.passed(number)
                    return found
                case Failed(trace=trace, error=error):
                    raise error_from(error) if error else RuntimeError(f"a reading process failed\n{trace}")

    def _give_up(self) -> None:
        self._admitting.give_up()
        self._keeping.give_up()

    def _start(self) -> None:
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-m", "clawpipe.data.ingest.intake.worker"]  # -P: import nothing from the current folder
        process = processes.spawn(command, env=os.environ | one_thread, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._processes.append(process)
        _ask(process, self._setup)
        self._free.put(process)

    def __enter__(self) -> Self:
        try:
            for _ in range(self.count):
                self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        self._give_up()
        for process in self._processes:
            processes.stop(process)


def _ask(process: subprocess.Popen[bytes], message: Setup | Piece | Admitted) -> None:
    try:
        send(_pipe(process.stdin), message)
    except (BrokenPipeError, ValueError):  # a ValueError if `stop` has closed the pipe
        raise _death() from None


def _answer(process: subprocess.Popen[bytes]) -> _Answer:
    answer = receive(_pipe(process.stdout), _Answer)  # pyright: ignore[reportArgumentType]  # a union is a type to msgspec
    if answer is None:
        raise _death()
    return answer


def _death() -> BusyError:
    return BusyError("a reading process was killed", fix="try again; if memory is short, name fewer files at once")


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
