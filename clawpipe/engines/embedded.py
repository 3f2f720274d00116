"""The embedded engine: transformers in this process, token in and token out, with exact log-probs.

A batch of conversations shares its longest common prefix, computed once and kept between batches of one policy; rows
keep their keys and values from turn to turn, so only new tokens are ever computed. Families whose rows cannot share a
sequence run by their own forward and cache. Everything is a function of the batch's own content: the same batch gives
the same bits, whenever and after whatever it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from clawpipe.config.quantization import Quantization
from clawpipe.engines.apart import ApartConversations
from clawpipe.engines.attention import NAME
from clawpipe.engines.conversations import EmbeddedConversations
from clawpipe.engines.rows import RowConversations, RowModel
from clawpipe.policy.forward import hidden_states, logits_of, replace_attention
from clawpipe.policy.layout import Layout, context_of, layout_of
from clawpipe.policy.load import load_policy, resolve_device


class EmbeddedEngine:
    """One policy on one device."""

    def __init__(
        self,
        base: Path,
        adapter: Path | None,
        dtype: str = "float32",
        device: str = "auto",
        quantization: Quantization = "none",
    ) -> None:
        self.device = resolve_device(device)
        self.model = load_policy(base, adapter, dtype, self.device, quantization)
        self.layout: Layout = layout_of(self.model)
        if self.layout == "packed":
            replace_attention(self.model, NAME)
        self._rows = RowModel(self.model) if self.layout == "packed" else None

    @property
    def context(self) -> int:
        """Longest token history that the model can hold."""
        return context_of(self.model)

    def begin(self, prompts: Sequence[Sequence[int]]) -> EmbeddedConversations:
        """Start a batch; prompts are (ragged) token ids, each of at least one token."""
        return RowConversations(self._rows, prompts) if self._rows else ApartConversations(self.model, prompts)

    def score(self, ids: Sequence[int], start: int, temperature: float = 1.0) -> list[float]:
        """Log-probs of `ids[start:]` (start >= 1) given what precedes each, from one plain forward pass."""
        likely = self.distributions(ids, range(start, len(ids)), temperature)
        targets = torch.tensor(ids[start:], device=self.device)
        return likely.gather(-1, targets[:, None]).squeeze(-1).tolist()

    @torch.inference_mode()
    def distributions(self, ids: Sequence[int], positions: Sequence[int], temperature: float = 1.0) -> Tensor:
        """Log-probs (P, V) of every token at P positions (>= 1) given what precedes each, from one plain forward pass."""
        tokens = torch.tensor([list(ids)], device=self.device)
        hidden = self._rows.row(tokens) if self._rows else hidden_states(self.model, tokens)[0]
        before = torch.tensor(positions, device=self.device) - 1
        return (logits_of(self.model, hidden[before]).float() / temperature).log_softmax(-1)
