"""Conversations that share a prefix and keep their keys and values from turn to turn: only new tokens are ever computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clawpipe.engines.attention import Held, Placement, RowCache
from clawpipe.engines.conversations import EmbeddedConversations
from clawpipe.policy.forward import hidden_states, logits_of


class RowModel:
    """A model that attends by rows, and the shared prefix that it was last asked for."""

    def __init__(self, model: Any) -> None:
        self.model, self.device = model, model.device
        self._prefix: tuple[tuple[int, ...], dict[int, Held]] = ((), {})

    def prefix(self, prefix: tuple[int, ...]) -> dict[int, Held]:
        """Keys and values (H_kv, P, D) of a prefix, by layer; the last one asked for is kept."""
        if prefix != self._prefix[0]:
            cache = RowCache(rows=0)
            if prefix:
                self.hidden(torch.tensor([prefix], device=self.device), torch.arange(len(prefix)), cache, None)
            self._prefix = (prefix, cache.prefix)
        return self._prefix[1]

    def row(self, tokens: Tensor) -> Tensor:
        """Last hidden states (N, d) of one row of tokens (1, N) by itself."""
        return self.hidden(tokens, torch.arange(tokens.shape[1]), RowCache(rows=0), None)

    def hidden(self, tokens: Tensor, positions: Tensor, cache: RowCache, place: Placement | None) -> Tensor:
        """Last hidden states (N, d) of flat tokens (1, N)."""
        places = positions[None].to(self.device)
        return hidden_states(self.model, tokens, position_ids=places, row_cache=cache, row_placement=place)[0]


class RowConversations(EmbeddedConversations):
    def __init__(self, rows: RowModel, prompts: Sequence[Sequence[int]]) -> None:
        self._rows = rows
        prefix = _common_prefix(prompts)
        with torch.inference_mode():
            self._cache = RowCache(
                rows=len(prompts),
                prefix_length=len(prefix),
                prefix=rows.prefix(prefix),
                lengths=torch.zeros(len(prompts), dtype=torch.long, device=rows.device),
            )
            self._prefill([tuple(prompt[len(prefix) :]) for prompt in prompts])

    def _prefill(self, own: list[tuple[int, ...]]) -> None:
        """Compute each distinct prompt once, up to its last token, and give equal rows a copy."""
        source = {ids: row for row, ids in reversed(list(enumerate(own)))}
        first = [source[ids] for ids in own]
        self._pending = {row: list(own[row][:-1]) for row in set(first) if len(own[row]) > 1}
        if self._pending:
            self._compute(sorted(self._pending))
            self._cache.copy_rows(first)
        self._pending = {row: [ids[-1]] for row, ids in enumerate(own)}

    def extend(self, tokens: dict[int, Sequence[int]]) -> None:
        for row, ids in tokens.items():
            self._pending.setdefault(row, []).extend(ids)

    def _begin_turn(self) -> None:
        pass

    def _append(self, row: int, token: int) -> None:
        self._pending[row] = [token]

    def _logits(self, active: list[int]) -> Tensor:
        return logits_of(self._rows.model, self._compute(active)).float()

    def _compute(self, active: list[int]) -> Tensor:
        """Run the pending tokens of the active rows; hidden states (len(active), d) of each row's last token."""
        pending = [self._pending.pop(row) for row in active]
        counts = torch.tensor([len(ids) for ids in pending])
        rows = torch.tensor(active).repeat_interleave(counts)
        column = torch.cat([torch.arange(count) for count in counts.tolist()])
        device = self._rows.device
        place = self._place(rows.to(device), column.to(device), int(counts.max()))
        flat = torch.tensor([[token for ids in pending for token in ids]], device=device)
        hidden = self._rows.hidden(flat, self._cache.prefix_length + place.slot, self._cache, place)
        self._cache.lengths[active] += counts.to(device)
        return hidden[counts.cumsum(0) - 1]

    def _place(self, rows: Tensor, column: Tensor, width: int) -> Placement:
        held = self._cache.lengths
        slot = held[rows] + column
        reach = held[:, None] + torch.arange(width, device=slot.device)
        return Placement(rows, slot, column, width, int(slot.max()) + 1, reach)


def _common_prefix(prompts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Longest prefix of all prompts that leaves each at least one token of its own."""
    first, last = min(map(list, prompts)), max(map(list, prompts))
    length = 0
    limit = min(len(prompt) for prompt in prompts) - 1
    while length < limit and first[length] == last[length]:
        length += 1
    return tuple(first[:length])
