"""The embedded engine: transformers in this process, token in and token out, with exact log-probs.

A batch of conversations shares its longest common prefix, computed once and kept between batches of one policy; rows
keep their keys and values from turn to turn, so only new tokens are ever computed. Everything is a function of the
batch's own content: the same batch gives the same bits, whenever and after whatever it runs.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from clawpipe.config.quantization import Quantization
from clawpipe.engines.attention import NAME, Placement, RowCache
from clawpipe.engines.base import Completion, Likelihood, Sampling
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
        self._core = load_policy(base, adapter, dtype, self.device, NAME, quantization)
        self._prefix: tuple[tuple[int, ...], list[Tensor]] = ((), [])

    @property
    def context(self) -> int:
        """Longest token history that the model can hold."""
        return self._core.config.max_position_embeddings

    def begin(self, prompts: Sequence[Sequence[int]]) -> EmbeddedConversations:
        """Start a batch; prompts are (ragged) token ids, each of at least one token."""
        return EmbeddedConversations(self, prompts)

    def score(self, ids: Sequence[int], start: int, temperature: float = 1.0) -> list[float]:
        """Log-probs of `ids[start:]` (start >= 1) given what precedes each, from one plain forward pass."""
        likely = self.distributions(ids, range(start, len(ids)), temperature)
        targets = torch.tensor(ids[start:], device=self.device)
        return likely.gather(-1, targets[:, None]).squeeze(-1).tolist()

    @torch.inference_mode()
    def distributions(self, ids: Sequence[int], positions: Sequence[int], temperature: float = 1.0) -> Tensor:
        """Log-probs (P, V) of every token at P positions (>= 1) given what precedes each, from one plain forward pass."""
        hidden = self.hidden(list(ids), torch.arange(len(ids)), RowCache(rows=0), None)
        before = torch.tensor(positions, device=self.device) - 1
        return (self.logits(hidden[before]) / temperature).log_softmax(-1)

    def shared_prefix(self, prefix: tuple[int, ...]) -> list[Tensor]:
        """Keys and values of a prefix, one (2, H_kv, P, D) a layer; the last one asked for is kept."""
        if prefix != self._prefix[0]:
            cache = RowCache(rows=0)
            if prefix:
                self.hidden(list(prefix), torch.arange(len(prefix)), cache, None)
            self._prefix = (prefix, cache.prefix)
        return self._prefix[1]

    def hidden(self, ids: list[int], positions: Tensor, cache: RowCache, place: Placement | None) -> Tensor:
        """Last hidden states (N, d) of N flat tokens."""
        decoder = self._core.get_decoder()
        out = decoder(
            input_ids=torch.tensor([ids], device=self.device),
            position_ids=positions[None].to(self.device),
            use_cache=False,
            row_cache=cache,
            row_placement=place,
        )
        return out.last_hidden_state[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 logits (N, V)."""
        head = self._core.get_output_embeddings()
        assert head is not None
        return head(hidden).float()


class _Step(NamedTuple):
    """One sampled token: its row, its log-prob at the sampling temperature, how it ends the turn ("": it does not), logits (V,)."""

    row: int
    token: int
    logprob: float
    last: str
    logits: Tensor


class EmbeddedConversations:
    """Rows of one batch. See `clawpipe.engines.base.Conversations`."""

    def __init__(self, engine: EmbeddedEngine, prompts: Sequence[Sequence[int]]) -> None:
        self._engine = engine
        prefix = _common_prefix(prompts)
        with torch.inference_mode():
            self._cache = RowCache(
                rows=len(prompts),
                prefix_length=len(prefix),
                prefix=engine.shared_prefix(prefix),
                lengths=torch.zeros(len(prompts), dtype=torch.long, device=engine.device),
            )
            self._prefill([tuple(prompt[len(prefix) :]) for prompt in prompts])

    def _prefill(self, own: list[tuple[int, ...]]) -> None:
        """Compute each distinct prompt once, up to its last token, and give equal rows a copy."""
        source = {ids: row for row, ids in reversed(list(enumerate(own)))}
        first = [source[ids] for ids in own]
        self._pending = {row: list(own[row][:-1]) for row in set(first) if len(own[row]) > 1}
        if self._pending:
            self._compute(sorted(self._pending))
            for layer in self._cache.own:
                layer.copy_(layer[:, first])
            self._cache.lengths = self._cache.lengths[first]
        self._pending = {row: [ids[-1]] for row, ids in enumerate(own)}

    def extend(self, tokens: dict[int, Sequence[int]]) -> None:
        for row, ids in tokens.items():
            self._pending.setdefault(row, []).extend(ids)

    @torch.inference_mode()
    def sample(self, seeds: dict[int, int], sampling: Sampling) -> dict[int, Completion]:
        turns: dict[int, Completion] = {}
        for row, token, logprob, last, _ in self._steps(seeds, sampling):
            ids, logprobs, _ = turns.setdefault(row, Completion([], [], "length"))
            ids.append(token)
            logprobs.append(logprob)
            if last:
                turns[row] = Completion(ids, logprobs, last)
        return turns

    @torch.inference_mode()
    def stream(self, row: int, seed: int, sampling: Sampling, top: int = 0) -> Generator[tuple[int, Likelihood], None, None]:
        """One row's turn, the same tokens as `sample` gives, one by one; each with the log-probs of its `top` likeliest rivals."""
        for step in self._steps({row: seed}, sampling):
            logprobs = step.logits.log_softmax(-1)
            values, tokens = logprobs.topk(top)
            yield step.token, Likelihood(logprobs[step.token].item(), list(zip(tokens.tolist(), values.tolist(), strict=True)))

    def _steps(self, seeds: dict[int, int], sampling: Sampling) -> Iterator[_Step]:
        """Sample token by token until every row's turn has ended."""
        draws = {row: random.Random(seed) for row, seed in seeds.items()}
        active = sorted(seeds)
        for step in range(1, sampling.max_new_tokens + 1):
            logits = self._engine.logits(self._compute(active))
            tokens, logprobs = _sample(logits, [draws[row].random() for row in active], sampling)
            going = []
            for row, token, logprob, scores in zip(active, tokens, logprobs, logits, strict=True):
                self._pending[row] = [token]
                reason = "stop" if token == sampling.stop_id else "length" if step == sampling.max_new_tokens else ""
                going += [] if reason else [row]
                yield _Step(row, token, logprob, reason, scores)
            active = going
            if not active:
                return

    def _compute(self, active: list[int]) -> Tensor:
        """Run the pending tokens of the active rows; hidden states (len(active), d) of each row's last token."""
        pending = [self._pending.pop(row) for row in active]
        counts = torch.tensor([len(ids) for ids in pending])
        rows = torch.tensor(active).repeat_interleave(counts)
        column = torch.cat([torch.arange(count) for count in counts.tolist()])
        place = self._place(rows.to(self._engine.device), column.to(self._engine.device), int(counts.max()))
        flat = [token for ids in pending for token in ids]
        hidden = self._engine.hidden(flat, self._cache.prefix_length + place.slot, self._cache, place)
        self._cache.lengths[active] += counts.to(self._engine.device)
        return hidden[counts.cumsum(0) - 1]

    def _place(self, rows: Tensor, column: Tensor, width: int) -> Placement:
        held = self._cache.lengths
        slot = held[rows] + column
        capacity = int(slot.max()) + 1
        slots = torch.arange(capacity, device=slot.device)
        reach = held[:, None] + torch.arange(width, device=slot.device)  # the slot of each row's new tokens
        return Placement(rows, slot, column, width, capacity, slots <= reach[:, :, None])


def _sample(logits: Tensor, draws: list[float], sampling: Sampling) -> tuple[list[int], list[float]]:
    """One token a row by inverse transform sampling from (N, V) logits, and its log-prob."""
    temperature = sampling.temperature
    logprobs = (logits / temperature if temperature else logits).log_softmax(-1)
    if temperature:
        mass = _nucleus(logprobs.exp().double(), sampling.top_p).cumsum(-1)
        target = torch.tensor(draws, dtype=torch.double, device=mass.device)[:, None] * mass[:, -1:]
        tokens = torch.searchsorted(mass, target, right=True).clamp_(max=mass.shape[-1] - 1)
    else:
        tokens = logprobs.argmax(-1, keepdim=True)
    return tokens.squeeze(-1).tolist(), logprobs.gather(-1, tokens).squeeze(-1).tolist()


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """(N, V) with 0 for what lies outside of the fewest likeliest tokens that together reach `top_p` (Holtzman et al. 2020)."""
    if top_p >= 1:
        return probabilities
    ranked, order = probabilities.sort(dim=-1, descending=True, stable=True)
    outside = ranked.cumsum(-1) - ranked >= top_p  # what is likelier holds enough already
    return probabilities.masked_fill(outside.scatter(-1, order, outside), 0.0)


def _common_prefix(prompts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Longest prefix of all prompts that leaves each at least one token of its own."""
    first, last = min(map(list, prompts)), max(map(list, prompts))
    length = 0
    limit = min(len(prompt) for prompt in prompts) - 1
    while length < limit and first[length] == last[length]:
        length += 1
    return tuple(first[:length])
