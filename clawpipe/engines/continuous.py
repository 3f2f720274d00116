"""Continuous batching: rows join and leave between two tokens, and share each pass through the model.

Every pass gives one token to each row that has its prompt, and computes a number of prompt tokens of rows that have not. A row
begins with the keys and values of the longest prefix that is computed already, by a row that runs or by one that has ended, so a
shared prefix is computed once and a conversation's next turn goes on where the last one ended. Clients take turns. Memory has a
limit in tokens: what is kept of ended rows gives way first, then the row that came last, which is computed again later and goes on
with the same draws.

A row's tokens and log-probs are those that it has alone but for rounding: its draws are its own, and it attends to nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch

from clawpipe.engines.embedded import EmbeddedEngine
from clawpipe.engines.rows import Apart, Row, RowsHeld, Together
from clawpipe.engines.sampling import Token, sample_tokens


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
        """Let a row wait that has begun."""
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
        self._held: RowsHeld = Together(engine, memory) if engine.layout == "packed" else Apart(engine)

    @property
    def at_once(self) -> int:
        """How many rows may run at a time."""
        return self._held.at_once

    @property
    def idle(self) -> bool:
        return not self.rows and self.queue.first() is None

    def add(self, row: Row) -> None:
        """Let a row wait for its place."""
        self.queue.put(row)

    def remove(self, row: Row) -> None:
        """End a row, wherever it is."""
        if row in self.rows:
            self.rows.remove(row)
            self._held.leave(row)
        else:
            self.queue.remove(row)
        self._give_back()

    def keep_ended(self, keeps: bool) -> None:
        """Say whether keys and values of ended rows are kept for later ones. If not, they are freed whenever no row runs."""
        self._keeps = keeps
        self._give_back()

    def _give_back(self) -> None:
        if not self._keeps and not self.rows:
            self._held.give_back()

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
        """Let waiting rows run while there is room."""
        while len(self.rows) < self.at_once and (row := self.queue.first()) is not None:
            if self.rows and not self._held.has_room(row, self.rows):
                return
            self.queue.pop()
            self.rows.append(row)
