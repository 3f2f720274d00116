"""The running rows of a batch and their caches of keys and values: in one sequence, or one row at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from clawpipe.core.system.machine import free_memory
from clawpipe.core.system.processes import trim_heap
from clawpipe.model.engines.adapters import Adapter
from clawpipe.model.engines.adapters import Span as Adapted
from clawpipe.model.engines.embedded import EmbeddedEngine, Lane
from clawpipe.model.engines.ragged import NAME, RowKeys, Span, quicken_linears
from clawpipe.model.engines.sampling import Constraint, Place, TurnSampling
from clawpipe.model.policy.forward import hidden_states, logits_of, with_attention

AT_ONCE = 64  # rows in a pass
_CHUNK = 256  # prompt tokens in a pass, so that a long prompt does not hold up the others' next token for long
_SHARED = 16  # least tokens of a prefix that are worth a copy
_TRIMMED = 1 / 16  # share of the budget that is dropped before malloc's heap is trimmed


@dataclass(eq=False)
class Row:
    """A turn to be sampled.

    Attributes:
        prompt: token ids, at least one.
        sampling: how; `max_new_tokens` is at least 1.
        seed: decides every draw.
        top: likeliest tokens to report at each place.
        client: whose turn it is; clients take turns.
        constraint: which tokens may follow.
        adapter: what it is computed with beside the engine's own model; other rows may have others.
        turn: tokens sampled so far.
        cached: how many tokens of the prompt had been computed before, for another row.
    """

    prompt: Sequence[int]
    sampling: TurnSampling
    seed: int
    top: int = 0
    client: str = ""
    constraint: Constraint | None = None
    adapter: Adapter | None = None
    turn: list[int] = field(default_factory=list)
    cached: int = 0

    def __post_init__(self) -> None:
        self.history = list(self.prompt)
        self._draws = random.Random(self.seed)

    @property
    def ended(self) -> bool:
        """Whether the turn has its last token."""
        full = len(self.turn) == self.sampling.max_new_tokens
        return full or (bool(self.turn) and self.turn[-1] in self.sampling.stop_ids)

    def place(self) -> Place:
        """Return what the next token depends on beside the logits. It uses up a draw."""
        return Place(self.prompt, self.turn, self.sampling, self._draws.random(), self.top, self.constraint)

    def append(self, token: int) -> None:
        """Append a sampled token."""
        self.turn.append(token)
        self.history.append(token)
        if self.constraint and not self.ended:
            self.constraint.accept(token)


class RowsHeld(Protocol):
    """The caches of the running rows in one model."""

    at_once: int

    def has_room(self, row: Row, rows: Sequence[Row]) -> bool:
        """Return whether the cache has room for `row` beside the running `rows`."""
        ...

    def make_room(self, rows: Sequence[Row]) -> list[Row]:
        """Free memory for the next pass; return the rows that were interrupted for it, whose caches are gone."""
        ...

    def compute(self, rows: Sequence[Row]) -> tuple[list[Row], Tensor]:
        """Run a pass; return the rows that are computed to their end and the float32 logits (rows, V) of their next tokens."""
        ...

    def leave(self, row: Row) -> None:
        """Forget a row, if it is held."""
        ...

    def free_ended_rows(self) -> None:
        """Free the cached prefixes of ended rows."""
        ...


def cache_budget_tokens(engine: EmbeddedEngine) -> int:
    """Return how many tokens' keys and values may be held: a quarter of the memory that is free now, or half of what the GPU has
    left."""
    if engine.layout != "packed":
        return 0
    free = torch.cuda.mem_get_info(engine.device)[0] / 2 if engine.device.type == "cuda" else free_memory() / 4
    return max(int(free / _token_bytes(engine.model)), engine.context)


@torch.inference_mode()
def _token_bytes(model: Any) -> float:
    """Return the bytes of one token's keys and values, as the engine's batch holds them."""
    keys = RowKeys()
    with with_attention(model, NAME):
        keys.reserve(1)
        one = torch.zeros(1, 1, dtype=torch.long, device=model.device)
        hidden_states(model, one, position_ids=one, spans=[Span(keys, 0, 1)])
    return keys.bytes / keys.capacity


class CachedPrefix(NamedTuple):
    """The tokens of an ended row, and their keys and values, which are of its adapter."""

    tokens: list[int]
    keys: RowKeys
    adapter: Adapter | None


class PackedRows:
    """Rows in one sequence, which share the prefixes that they have in common.

    Args:
        engine: its model attends by rows.
        memory: the most tokens that are held; at least one row runs whatever it is.
    """

    at_once = AT_ONCE

    def __init__(self, engine: EmbeddedEngine, memory: int) -> None:
        self._engine, self._model, self._memory = engine, engine.model, memory
        self._keys: dict[Row, RowKeys] = {}
        self._kept: list[CachedPrefix] = []  # the last one ended last
        self._freed = 0  # tokens whose buffers were dropped since malloc's heap was trimmed; untrimmed, it grew to twice the budget
        self._adapters = engine.adapters
        self._model.set_attn_implementation(NAME)
        quicken_linears(self._model)

    def has_room(self, row: Row, rows: Sequence[Row]) -> bool:
        return sum(RowKeys.room(len(other.history)) for other in (*rows, row)) <= self._memory

    def make_room(self, rows: Sequence[Row]) -> list[Row]:
        running, interrupted = list(rows), []
        while self._wanted(running) > self._memory and (self._kept or len(running) > 1):
            if self._kept:
                self._freed += self._kept.pop(0).keys.capacity
            else:
                interrupted.append(running.pop())
                self._keys.pop(interrupted[-1], None)
        self._trim()
        return interrupted

    def compute(self, rows: Sequence[Row]) -> tuple[list[Row], Tensor]:
        parts = self._plan(rows)
        spans, fed, positions, end = [], [], [], 0
        for row, count in parts:
            keys = self._keys[row]
            self._freed += keys.reserve(keys.length + count)
            spans.append(Span(keys, end, end := end + count))
            fed += row.history[keys.length : keys.length + count]
            positions += range(keys.length, keys.length + count)
        flat = torch.tensor([fed, positions], device=self._model.device)
        with self._adapted(parts, spans):
            hidden = hidden_states(self._model, flat[:1], position_ids=flat[1:], spans=spans)[0]
        ready = []
        for (row, count), span in zip(parts, spans, strict=True):
            span.keys.length += count
            ready += [(row, span.end - 1)] if span.keys.length == len(row.history) else []
        last = hidden[[place for _, place in ready]]
        return [row for row, _ in ready], logits_of(self._model, last).float() if ready else last

    def leave(self, row: Row) -> None:
        keys = self._keys.pop(row, None)
        if keys is not None and keys.length >= _SHARED:
            self._kept.append(CachedPrefix(row.history[: keys.length], keys, row.adapter))

    def free_ended_rows(self) -> None:
        if self._kept:
            self._kept.clear()
            trim_heap()

    def _trim(self) -> None:
        if self._freed > self._memory * _TRIMMED:
            self._freed = 0
            trim_heap()

    def _adapted(self, parts: Sequence[tuple[Row, int]], spans: Sequence[Span]) -> AbstractContextManager[None]:
        """Return a block in which each row is computed with its own adapter."""
        own = [Adapted(row.adapter, span.start, span.end) for (row, _), span in zip(parts, spans, strict=True) if row.adapter]
        return self._engine.adapters.placed(own) if own else nullcontext()

    def _wanted(self, rows: Sequence[Row]) -> int:
        """Return how many tokens of memory the next pass needs."""
        running = sum(max(RowKeys.room(len(row.history)), keys.capacity if (keys := self._keys.get(row)) else 0) for row in rows)
        return running + sum(kept.keys.capacity for kept in self._kept)

    def _plan(self, rows: Sequence[Row]) -> list[tuple[Row, int]]:
        """Return the rows of this pass, each with how many of its tokens are computed."""
        parts, left = [], _CHUNK
        for row in rows:
            if row not in self._keys and not (left and self._begin(row)):
                continue
            missing = len(row.history) - self._keys[row].length
            count = missing if missing == 1 else min(missing, left)
            left -= count if missing > 1 else 0
            parts += [(row, count)] if count else []
        return parts

    def _begin(self, row: Row) -> bool:
        """Begin a row with the longest prefix that is computed already; False if another row computes a longer one right now."""
        limit = row.history[:-1]
        own = row.adapter  # what another adapter has computed is of another model
        running = [(_common(limit, other.history), keys) for other, keys in self._keys.items() if other.adapter is own]
        kept = [(_common(limit, found.tokens), found.keys) for found in self._kept if found.adapter is own]
        length, source = max(
            ((min(shared, keys.length), keys) for shared, keys in (*running, *kept)), key=lambda found: found[0], default=(0, None)
        )
        if any(shared - max(length, keys.length) >= _SHARED for shared, keys in running):
            return False
        found = bool(source) and length >= _SHARED
        self._keys[row] = self._started(source, length) if source and found else RowKeys()
        if found and not row.turn:
            row.cached = length
        return True

    def _started(self, source: RowKeys, length: int) -> RowKeys:
        """Return keys and values of a prefix: those of an ended row themselves where all of it is used, else a copy."""
        whole = next((kept for kept in self._kept if kept.keys is source and source.length == length), None)
        if whole:
            self._kept.remove(whole)
            return source
        keys = RowKeys()
        keys.copy_prefix(source, length)
        return keys


class SerialRows:
    """Rows of a model that cannot share a sequence, such as one with a recurrent state: one at a time."""

    at_once = 1

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._model = engine.model
        self._lanes: dict[Row, Lane] = {}

    def has_room(self, row: Row, rows: Sequence[Row]) -> bool:
        return not rows

    def make_room(self, rows: Sequence[Row]) -> list[Row]:
        return []

    def compute(self, rows: Sequence[Row]) -> tuple[list[Row], Tensor]:
        [row] = rows
        lane = self._lanes.setdefault(row, Lane(self._model, [0]))
        return [row], lane.advance([row.history])[0][None]

    def leave(self, row: Row) -> None:
        self._lanes.pop(row, None)

    def free_ended_rows(self) -> None:
        pass


def _common(first: list[int], second: list[int]) -> int:
    """Return the length of the common prefix."""
    low, high = 0, min(len(first), len(second))
    if first[:_SHARED] != second[:_SHARED]:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[low:middle] == second[low:middle] else (low, middle - 1)
    return low
