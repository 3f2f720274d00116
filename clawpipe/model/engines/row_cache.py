"""Keys and values of a batch of conversations: of the prefix that all share, and of each row's own tokens.

Rows of about one length lie in one buffer, a group, as long as its longest row. One row that reads a long text would make all
others as long: a group is split where that would waste much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, nn

_GROW = 64
_WASTED = 4096  # tokens of padding that are worth a group of their own, if they are a quarter of the buffer


class Held(NamedTuple):
    """Keys (..., D) and values (..., D_v) of one layer."""

    keys: Tensor
    values: Tensor


class Group:
    """Some rows of a batch, in order: the keys and values (rows, H_kv, capacity, D) of their own tokens, by layer."""

    def __init__(self, rows: Sequence[int]) -> None:
        self.rows = list(rows)
        self._own: dict[int, Held] = {}

    @property
    def capacity(self) -> int:
        """The tokens that its buffers have room for."""
        return max((len(self.rows) * held.keys.shape[2] for held in self._own.values()), default=0)

    def reserve(self, capacity: int, key: Tensor, value: Tensor, layer: int) -> Held:
        """Return the layer's buffers, with room for `capacity` tokens per row; key (H_kv, N, D), value (H_kv, N, D_v)."""
        if layer not in self._own:
            self._own[layer] = Held(*(like.new_zeros(len(self.rows), like.shape[0], 0, like.shape[-1]) for like in (key, value)))
        missing = capacity - self._own[layer].keys.shape[2]
        if missing > 0:
            room = -(-missing // _GROW) * _GROW
            self._own[layer] = Held(*(nn.functional.pad(held, (0, 0, 0, room)) for held in self._own[layer]))
        return self._own[layer]

    def copy_rows(self, source: Sequence[int]) -> None:
        """Copy keys and values between rows: the batch's row r gets those of its row `source[r]`, which is in this group, too."""
        places = [self.rows.index(source[row]) for row in self.rows]
        for layer in self._own.values():
            for held in layer:
                held.copy_(held[places])

    def split(self, lengths: Sequence[int]) -> list[Group]:
        """Return the group itself, or its rows in several groups where these waste less.

        Args:
            lengths: the tokens that each row of the batch is to hold. Rows of one length stay together.
        """
        ordered = sorted(self.rows, key=lambda row: (lengths[row], row))
        longest, count = lengths[ordered[-1]], len(ordered)
        cuts = [
            (size, lengths[ordered[size - 1]]) for size in range(1, count) if lengths[ordered[size - 1]] < lengths[ordered[size]]
        ]
        saved, size = max(((size * (longest - needed), size) for size, needed in cuts), default=(0, 0))
        if saved < max(_WASTED, count * longest / 4):
            return [self]
        low, high = (self._subset(sorted(part)) for part in (ordered[:size], ordered[size:]))
        return [*low.split(lengths), *high.split(lengths)]

    def _subset(self, rows: Sequence[int]) -> Group:
        subset, places = Group(rows), [self.rows.index(row) for row in rows]
        subset._own = {layer: Held(held.keys[places], held.values[places]) for layer, held in self._own.items()}
        return subset


@dataclass
class Placement:
    """Where the new tokens of a group belong.

    Attributes:
        tokens: (N,) their places in the flat sequence of all groups' new tokens.
        row, slot, column: (N,) row of the group, slot in that row, and place among that row's new tokens.
        width: the most new tokens of a row.
        capacity: the most tokens that a row holds with them.
        reach: (R, width) the slot of each row's new tokens.
    """

    group: Group
    tokens: Tensor
    row: Tensor
    slot: Tensor
    column: Tensor
    width: int
    capacity: int
    reach: Tensor
    _hidden: dict[int | None, Tensor] = field(default_factory=dict)

    def hidden(self, window: int | None, prefix: int) -> Tensor:
        """Return a mask (R, width, T), True where a new token must not attend, over the last T of the prefix and slots."""
        if window not in self._hidden:
            reach = self.reach[:, :, None]
            place = torch.arange(0 if window is None else -prefix, self.capacity, device=reach.device)
            self._hidden[window] = place > reach if window is None else (place > reach) | (place <= reach - window)
        return self._hidden[window]


class RowCache:
    """Keys and values of a shared prefix, by layer (H_kv, P, D), and of `rows` continuations.

    Attributes:
        lengths: tokens that each row holds beyond the prefix.
    """

    def __init__(self, rows: int, prefix_length: int = 0, prefix: dict[int, Held] | None = None) -> None:
        self.prefix_length, self.prefix = prefix_length, {} if prefix is None else prefix
        self.lengths = [0] * rows
        self._groups = [Group(range(rows))]

    @property
    def capacity(self) -> int:
        """The tokens that the rows' buffers have room for."""
        return sum(group.capacity for group in self._groups)

    def split(self, lengths: Sequence[int]) -> None:
        """Put rows of very different lengths into groups of their own, before they hold so many tokens."""
        self._groups = [part for group in self._groups for part in group.split(lengths)]

    def copy_rows(self, source: Sequence[int]) -> None:
        """Let row r hold what row `source[r]` holds. Both are in one group, as rows of one length are."""
        for group in self._groups:
            group.copy_rows(source)
        self.lengths = [self.lengths[row] for row in source]

    def places(self, counts: dict[int, int], device: torch.device) -> list[Placement]:
        """Return where new tokens belong, by group.

        Args:
            counts: how many each row gets, by row in ascending order, in which they follow each other in the flat sequence.
        """
        first = dict(zip(counts, accumulate(counts.values(), initial=0), strict=False))
        return [self._placed(group, counts, first, device) for group in self._groups if not counts.keys().isdisjoint(group.rows)]

    def _placed(self, group: Group, counts: dict[int, int], first: dict[int, int], device: torch.device) -> Placement:
        """Place a group's new tokens; `first` is where each row's begin in the flat sequence."""
        number = torch.tensor([counts.get(row, 0) for row in group.rows])
        held = torch.tensor([self.lengths[row] for row in group.rows])
        begins = torch.tensor([first.get(row, 0) for row in group.rows])
        row = torch.arange(len(group.rows)).repeat_interleave(number)
        column = torch.arange(len(row)) - (number.cumsum(0) - number)[row]
        slot, width = held[row] + column, int(number.max())
        reach = held[:, None] + torch.arange(width)
        return Placement(
            group, (begins[row] + column).to(device), row.to(device), slot.to(device), column.to(device),
            width, int(slot.max()) + 1, reach.to(device),
        )  # fmt: skip
