"""A reading process: `python -m clawpipe.data.ingest.intake.worker`.

It receives a `Setup`, then one `Piece` after the other. For each batch of a piece it sends `Claims`, receives `Admitted`, and sends
`Columns`; after the last batch it sends `Found`. It ends when its standard input ends.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from pathlib import Path
from typing import IO

from clawpipe.core.store.home import Home
from clawpipe.data.forgotten.tombstones import read_tombstones
from clawpipe.data.importers.read.read import Reader
from clawpipe.data.importers.read.reading import Reading
from clawpipe.data.ingest.intake.claims import Admitted
from clawpipe.data.ingest.intake.pieces import Piece
from clawpipe.data.ingest.intake.prepare import Preparer, check_record
from clawpipe.data.ingest.intake.wire import Failed, Found, Setup, columns_of, receive, send
from clawpipe.data.privacy.redact import redactor
from clawpipe.data.privacy.rules import rules_of
from clawpipe.errors import ClawpipeError

_ALLOCATIONS = 1_000_000  # objects between two searches for cycles, which rows are not part of


class Worker:
    """Reads pieces, and asks the main process over two pipes which records are new."""

    def __init__(self, reader: Reader, preparer: Preparer, questions: IO[bytes], answers: IO[bytes]) -> None:
        self._reader, self._preparer, self._questions, self._answers = reader, preparer, questions, answers

    def read(self, piece: Piece) -> None:
        self._reader.reading = Reading()
        leaving = ("sessions",) if piece.whole else ("sessions", "spread")
        records = self._reader.file(piece.file, piece.start, piece.known_as, piece.end, leaving)
        for batch in self._preparer.batches(records):
            send(self._questions, batch.claims)
            admitted = receive(self._answers, Admitted)
            if admitted is None:
                return
            send(self._questions, columns_of(self._preparer.made(batch, admitted)))
        send(self._questions, Found.of(self._reader))


def serve(answers: IO[bytes], questions: IO[bytes]) -> None:
    """Read pieces until nobody asks for one any more."""
    setup = receive(answers, Setup)
    if setup is None:
        return
    home, options = Home(Path(os.fsdecode(setup.home))), setup.options
    with redactor(1, rules_of(home.root), setup.secrets) as redact:
        preparer = Preparer(redact, options, read_tombstones(home), setup.labelled)
        reader = Reader(options.format, check=check_record, mapping=options.mapping)
        worker = Worker(reader, preparer, questions, answers)
        while piece := receive(answers, Piece):
            worker.read(piece)


if __name__ == "__main__":
    gc.set_threshold(_ALLOCATIONS)
    asks = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints belongs in no message
    try:
        serve(sys.stdin.buffer, asks)
    except Exception as error:
        fields = error.as_dict() if isinstance(error, ClawpipeError) else None
        send(asks, Failed(traceback.format_exc(), fields))
        sys.exit(1)
