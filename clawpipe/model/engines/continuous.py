"""Continuous batching: a row joins or leaves the batch between two forward passes, and all rows share each pass.

Each pass samples one token for every row whose prompt has been computed, and computes some prompt tokens of the other rows. A row
reuses the keys and values of the longest prefix that a running or ended row has computed, so a shared prefix is computed once, and
the next turn of a conversation needs only its new tokens. Waiting rows are served client by client. The cache has a limit in
tokens: when it is full, the prefixes of ended rows are freed first; then the row that joined last is interrupted, and later
computed again with the same random numbers.

Except for rounding, a row's tokens and log-probs do not depend on the other rows: it has its own random numbers, and attends only
to its own tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch

from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.engines.rows import PackedRows, Row, RowsHeld, SerialRows
from clawpipe.model.engines.sampling import Token, sample_tokens


class FairQueue:
    """Rows that wait: first those that were interrupted, then one of each client in turn."""

    def __init__(self) -> None:
        self._interrupted: deque[Row] = deque()
        self._clients: dict[str, deque[Row]] = {}  # in the order of their turns

    def __iter__(self) -> Iterator[Row]:
        yield from self._interrupted
        for rows in self._clients.values():
            yield from rows

    def put(self, row: Row) -> None:
        self._clients.setdefault(row.client, deque()).append(row)

    def put_back(self, row: Row) -> None:
        """Queue an interrupted row again, before all others."""
        self._interrupted.appendleft(row)

    def first(self) -> Row | None:
        return next(iter(self), None)

    def pop(self) -> None:
        """Remove the first row, and put its client last."""
        if self._interrupted:
            self._interrupted.popleft()
            return
        client, rows = next(iter(self._clients.items()))
        rows.popleft()
        del self._clients[client]
        if rows:
            self._clients[client] = rows

    def remove(self, row: Row) -> None:
        """Remove a row, if it waits."""
        for rows in (self._interrupted, self._clients.get(row.client, deque())):
            if row in rows:
                rows.remove(row)
        if not self._clients.get(row.client, True):
            del self._clients[row.client]


class ContinuousBatch:
    """Samples the turns of many rows with one engine, from one thread.

    Args:
        engine: its model attends as this batch needs from now on; scoring stays possible between two steps.
        memory: the most tokens whose keys and values are held, those kept for later included.
    """

    def __init__(self, engine: EmbeddedEngine, memory: int) -> None:
        self.queue = FairQueue()
        self.rows: list[Row] = []  # that run, oldest first
        self._keeps = True
        self._held: RowsHeld = PackedRows(engine, memory) if engine.layout == "packed" else SerialRows(engine)

    @property
    def at_once(self) -> int:
        """How many rows may run at a time."""
        return self._held.at_once

    @property
    def idle(self) -> bool:
        return not self.rows and self.queue.first() is None

    def add(self, row: Row) -> None:
        """Queue a row."""
        self.queue.put(row)

    def remove(self, row: Row) -> None:
        """Remove a row, whether it waits or runs."""
        if row in self.rows:
            self.rows.remove(row)
            self._held.leave(row)
        else:
            self.queue.remove(row)
        self._free_ended_rows()

    def keep_ended(self, keeps: bool) -> None:
        """Say whether keys and values of ended rows are kept for later ones. If not, they are freed whenever no row runs."""
        self._keeps = keeps
        self._free_ended_rows()

    def _free_ended_rows(self) -> None:
        if not self._keeps and not self.rows:
            self._held.free_ended_rows()

    @torch.inference_mode()
    def step(self) -> list[tuple[Row, Token]]:
        """Run one pass; return the tokens that rows got. A row with its last token has left."""
        self._admit()
        for row in self._held.make_room(self.rows):
            self.rows.remove(row)
            self.queue.put_back(row)
        if not self.rows:
            return []
        ready, logits = self._held.compute(self.rows)
        if not ready:
            return []
        tokens = sample_tokens(logits, [row.place() for row in ready])
        for row, token in zip(ready, tokens, strict=True):
            row.append(token.id)
            if row.ended:
                self.remove(row)
        return list(zip(ready, tokens, strict=True))

    def _admit(self) -> None:
        """Start waiting rows while the cache has room for them."""
        while len(self.rows) < self.at_once and (row := self.queue.first()) is not None:
            if self.rows and not self._held.has_room(row, self.rows):
                return
            self.queue.pop()
            self.rows.append(row)
