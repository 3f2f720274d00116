"""Conversations by the model's own forward and its own cache, for families whose rows cannot share one sequence.

Slower, and right for whatever transformers runs: a turn begins with one pass over the row's whole history, and goes on with the
cache that the model itself made of it, one token at a time. Only rows of equal length go together, so nothing is padded.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clawpipe.engines.conversations import EmbeddedConversations
from clawpipe.policy.forward import decoder_of, logits_of

_CACHES = ("past_key_values", "cache_params")  # what families call theirs; with none, each token takes a pass over the whole row


class ApartConversations(EmbeddedConversations):
    def __init__(self, model: Any, prompts: Sequence[Sequence[int]]) -> None:
        self._model = model
        self._histories = [list(prompt) for prompt in prompts]
        self._lanes: list[_Lane] = []

    def extend(self, tokens: dict[int, Sequence[int]]) -> None:
        for row, ids in tokens.items():
            self._histories[row].extend(ids)

    def _begin_turn(self) -> None:
        self._lanes = []

    def _append(self, row: int, token: int) -> None:
        self._histories[row].append(token)

    def _logits(self, active: list[int]) -> Tensor:
        if not self._lanes:
            ordered = sorted(active, key=lambda row: len(self._histories[row]))
            parts = itertools.groupby(ordered, key=lambda row: len(self._histories[row]))
            self._lanes = [_Lane(self._model, list(rows)) for _, rows in parts]
        self._lanes = [lane for lane in self._lanes if not set(lane.rows).isdisjoint(active)]
        found = {row: logits for lane in self._lanes for row, logits in lane.advance(self._histories).items()}
        return torch.stack([found[row] for row in active])


class _Lane:
    """Rows that began a turn with histories of one length. A row whose turn has ended goes on with its last token, unheard."""

    def __init__(self, model: Any, rows: list[int]) -> None:
        self.rows, self._model, self._decoder = rows, model, decoder_of(model)
        self._placed = "position_ids" in inspect.signature(self._decoder.forward).parameters
        self._cache: dict[str, Any] = {}
        self._held = 0  # tokens in the cache

    def advance(self, histories: Sequence[Sequence[int]]) -> dict[int, Tensor]:
        """float32 logits (V,) by row."""
        fed = torch.tensor([histories[row][-1:] if self._cache else histories[row] for row in self.rows], device=self._model.device)
        places = torch.arange(self._held, self._held + fed.shape[1], device=fed.device).expand_as(fed)
        out = self._decoder(fed, use_cache=True, **self._cache, **({"position_ids": places} if self._placed else {}))
        self._cache = {name: out[name] for name in _CACHES if out.get(name) is not None}
        self._held = self._held + fed.shape[1] if self._cache else 0
        return dict(zip(self.rows, logits_of(self._model, out.last_hidden_state[:, -1]).float(), strict=True))
