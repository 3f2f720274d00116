"""The embedded engine: transformers in this process, token in and token out, with exact log-probs.

A batch of conversations shares its longest common prefix, computed once and kept between batches of one policy; rows
keep their keys and values from turn to turn, so only new tokens are ever computed. Families whose rows cannot share a
sequence run by their own forward and cache. Everything is a function of the batch's own content: the same batch gives
the same bits, whenever and after whatever it runs.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clawpipe.core.config.quantization import Quantization
from clawpipe.model.engines.adapters import Adapter, SideBySide, Span
from clawpipe.model.engines.attention import NAME
from clawpipe.model.engines.conversations import EmbeddedConversations
from clawpipe.model.engines.row_cache import Held, Placement, RowCache
from clawpipe.model.policy.forward import decoder_of, hidden_states, logits_of, replace_attention
from clawpipe.model.policy.layout import Layout, context_of, layout_of
from clawpipe.model.policy.load import load_policy, resolve_device

_PASS = 16384  # new tokens in a pass; of more, each row's come a part at a time
_CACHES = ("past_key_values", "cache_params")  # what families call theirs; with none, each token takes a pass over the whole row


class RowModel:
    """A model that attends by rows; it keeps the keys and values of the last shared prefix."""

    def __init__(self, model: Any) -> None:
        self.model, self.device = model, model.device
        self._prefix: tuple[tuple[int, ...], dict[int, Held]] = ((), {})

    def prefix(self, prefix: tuple[int, ...]) -> dict[int, Held]:
        """Return keys and values (H_kv, P, D) of a prefix by layer; those of the last prefix are kept."""
        if prefix != self._prefix[0]:
            cache = RowCache(rows=0)
            if prefix:
                self.hidden(torch.tensor([prefix], device=self.device), torch.arange(len(prefix)), cache, None)
            self._prefix = (prefix, cache.prefix)
        return self._prefix[1]

    def row(self, tokens: Tensor) -> Tensor:
        """Return the last hidden states (N, d) of a single row of tokens (1, N)."""
        return self.hidden(tokens, torch.arange(tokens.shape[1]), RowCache(rows=0), None)

    def hidden(self, tokens: Tensor, positions: Tensor, cache: RowCache, places: Sequence[Placement] | None) -> Tensor:
        """Return the last hidden states (N, d) of the tokens (1, N) of several rows."""
        numbers = positions[None].to(self.device)
        return hidden_states(self.model, tokens, position_ids=numbers, row_cache=cache, row_places=places)[0]


class RowConversations(EmbeddedConversations):
    def __init__(self, context: int, prompts: Sequence[Sequence[int]], rows: RowModel) -> None:
        super().__init__(context, prompts)
        self._rows = rows
        prefix = _common_prefix(prompts)
        with torch.inference_mode():
            self._cache = RowCache(len(prompts), len(prefix), rows.prefix(prefix))
            self._prefill([tuple(prompt[len(prefix) :]) for prompt in prompts])

    def _prefill(self, own: list[tuple[int, ...]]) -> None:
        """Compute each different prompt once, up to its last token, and copy the result to equal rows."""
        source = {ids: row for row, ids in reversed(list(enumerate(own)))}
        first = [source[ids] for ids in own]
        self._pending = {row: list(own[row][:-1]) for row in set(first) if len(own[row]) > 1}
        self._cache.split([len(ids) - 1 for ids in own])
        if self._pending:
            self._compute(sorted(self._pending))
            self._cache.copy_rows(first)
        self._pending = {row: [ids[-1]] for row, ids in enumerate(own)}

    def _begin_turn(self) -> None:
        pass

    def _append(self, row: int, ids: Sequence[int]) -> None:
        self._pending.setdefault(row, []).extend(ids)

    def _logits(self, active: list[int]) -> Tensor:
        self._cache.split([held + len(self._pending.get(row, ())) for row, held in enumerate(self._cache.lengths)])
        return logits_of(self._rows.model, self._compute(active)).float()

    def _compute(self, active: list[int]) -> Tensor:
        """Run the pending tokens of the active rows; return the hidden states (len(active), d) of each row's last token."""
        pending = {row: self._pending.pop(row) for row in active}
        total = sum(map(len, pending.values()))
        most = total if total <= _PASS else max(1, _PASS // len(pending))  # of a row, in a pass
        last = dict[int, Tensor]()
        while pending:
            hidden = self._run({row: ids[:most] for row, ids in pending.items()})
            last |= {row: hidden[place] for place, (row, ids) in enumerate(pending.items()) if len(ids) <= most}
            pending = {row: ids[most:] for row, ids in pending.items() if len(ids) > most}
        return torch.stack([last[row] for row in active])

    def _run(self, new: dict[int, Sequence[int]]) -> Tensor:
        """Run one pass; return the hidden states (len(new), d) of each row's last new token."""
        counts = {row: len(ids) for row, ids in new.items()}
        places = self._cache.places(counts, self._rows.device)
        held, prefix = self._cache.lengths, self._cache.prefix_length
        positions = torch.tensor([prefix + held[row] + place for row, count in counts.items() for place in range(count)])
        flat = torch.tensor([[token for ids in new.values() for token in ids]], device=self._rows.device)
        hidden = self._rows.hidden(flat, positions, self._cache, places)
        for row, count in counts.items():
            held[row] += count
        return hidden[torch.tensor([*counts.values()]).cumsum(0) - 1]


def _common_prefix(prompts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the longest prefix that all prompts share and that leaves each prompt at least one token."""
    first, last = min(map(list, prompts)), max(map(list, prompts))
    length = 0
    limit = min(len(prompt) for prompt in prompts) - 1
    while length < limit and first[length] == last[length]:
        length += 1
    return tuple(first[:length])


class ApartConversations(EmbeddedConversations):
    def __init__(self, context: int, prompts: Sequence[Sequence[int]], model: Any) -> None:
        super().__init__(context, prompts)
        self._model = model
        self._histories = [list(prompt) for prompt in prompts]
        self._lanes: list[Lane] = []

    def _begin_turn(self) -> None:
        self._lanes = []

    def _append(self, row: int, ids: Sequence[int]) -> None:
        self._histories[row].extend(ids)

    def _logits(self, active: list[int]) -> Tensor:
        if not self._lanes:
            ordered = sorted(active, key=lambda row: len(self._histories[row]))
            parts = itertools.groupby(ordered, key=lambda row: len(self._histories[row]))
            self._lanes = [Lane(self._model, list(rows)) for _, rows in parts]
        self._lanes = [lane for lane in self._lanes if not set(lane.rows).isdisjoint(active)]
        found = {row: logits for lane in self._lanes for row, logits in lane.advance(self._histories).items()}
        return torch.stack([found[row] for row in active])


class Lane:
    """Rows whose histories had one length when the turn began. A row that has ended goes on with its last token, to no effect."""

    def __init__(self, model: Any, rows: list[int]) -> None:
        self.rows, self._model, self._decoder = rows, model, decoder_of(model)
        self._placed = "position_ids" in inspect.signature(self._decoder.forward).parameters
        self._cache: dict[str, Any] = {}
        self._held = 0  # tokens in the cache

    def advance(self, histories: Sequence[Sequence[int]]) -> dict[int, Tensor]:
        """Run the last tokens of the rows; return float32 logits (V,) by row."""
        fed = torch.tensor([histories[row][-1:] if self._cache else histories[row] for row in self.rows], device=self._model.device)
        places = torch.arange(self._held, self._held + fed.shape[1], device=fed.device).expand_as(fed)
        out = self._decoder(fed, use_cache=True, **self._cache, **({"position_ids": places} if self._placed else {}))
        self._cache = {name: out[name] for name in _CACHES if out.get(name) is not None}
        self._held = self._held + fed.shape[1] if self._cache else 0
        return dict(zip(self.rows, logits_of(self._model, out.last_hidden_state[:, -1]).float(), strict=True))


class EmbeddedEngine:
    """The engine of one policy on one device."""

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
        self._begun = RowModel(self.model) if self.layout == "packed" else None  # holds what the row scored last begins with

    @cached_property
    def adapters(self) -> SideBySide:
        """What computes rows with adapters of their own beside the model."""
        return SideBySide(self.model)

    @property
    def context(self) -> int:
        """The most tokens that a history may have."""
        return context_of(self.model)

    def begin(self, prompts: Sequence[Sequence[int]]) -> EmbeddedConversations:
        """Start a batch of conversations; prompts are token ids, of different lengths, each of at least one token."""
        if self._rows:
            return RowConversations(self.context, prompts, self._rows)
        return ApartConversations(self.context, prompts, self.model)

    def score_with(self, adapter: Adapter | None, ids: Sequence[int], start: int) -> list[float]:
        """Return what `score` returns, computed with an adapter."""
        with self.adapters.placed([Span(adapter, 0, len(ids))] if adapter else []):
            return self.score(ids, start)

    def score(self, ids: Sequence[int], start: int, temperature: float = 1.0) -> list[float]:
        """Return the log-probs of `ids[start:]` (start >= 1), each given the tokens before it, from one plain forward pass."""
        likely = self.distributions(ids, range(start, len(ids)), temperature)
        targets = torch.tensor(ids[start:], device=self.device)
        return likely.gather(-1, targets[:, None]).squeeze(-1).tolist()

    @torch.inference_mode()
    def score_rest(self, ids: Sequence[int], start: int, temperature: float = 1.0) -> list[float]:
        """Return what `score` returns, but for rounding, which depends on this row alone. For rows that begin with the same `start`
        tokens, one after the other, these are computed once."""
        begin, rest = tuple(ids[: start - 1]), list(ids[start - 1 :])
        if self._begun is None or len(begin) < len(rest):  # little would be saved
            return self.score(ids, start, temperature)
        cache = RowCache(1, len(begin), self._begun.prefix(begin))
        places = cache.places({0: len(rest)}, self.device)
        tokens = torch.tensor([rest], device=self.device)
        hidden = self._begun.hidden(tokens, torch.arange(len(begin), len(ids)), cache, places)[:-1]
        likely = (logits_of(self.model, hidden).float() / temperature).log_softmax(-1)
        return likely.gather(-1, tokens[0, 1:, None]).squeeze(-1).tolist()

    @torch.inference_mode()
    def distributions(self, ids: Sequence[int], positions: Sequence[int], temperature: float = 1.0) -> Tensor:
        """Return log-probs (P, V) of all tokens at P positions (>= 1), given the tokens before each, from one forward pass."""
        tokens = torch.tensor([list(ids)], device=self.device)
        hidden = self._rows.row(tokens) if self._rows else hidden_states(self.model, tokens)[0]
        before = torch.tensor(positions, device=self.device) - 1
        return (logits_of(self.model, hidden[before]).float() / temperature).log_softmax(-1)
