"""Log-probs of chosen tokens only, from the model's own forward.

The base model's `forward` is replaced in place and the *wrapped* model is called, so that the hooks of PEFT and of
distributed wrappers run; reaching for the decoder behind their back would skip a gradient all-reduce in silence.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

_CHUNK = 256  # scores at a time: logits of the whole pack would outweigh everything else in memory


class Scores(NamedTuple):
    """Of U asked tokens: log-prob in nats with gradient [U], and entropy of the distribution they were taken from [U]."""

    logprobs: Tensor
    entropy: Tensor


def install_scoring_head(model: Any) -> None:
    """Teach `model` to answer with `Scores` when it is called with `score=(score_index, targets, temperatures)`, each [U]."""
    base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
    original = base.forward

    @functools.wraps(original)
    def forward(*args, score: tuple[Tensor, Tensor, Tensor] | None = None, **kwargs):
        if score is None:
            return original(*args, **kwargs)
        index, targets, temperatures = score
        inputs = {name: kwargs[name] for name in ("input_ids", "position_ids", "attention_mask")}
        hidden = base.get_decoder()(**inputs, use_cache=False).last_hidden_state[0]
        return _score(base.get_output_embeddings(), hidden[index], targets, temperatures)

    base.forward = forward


def _score(head: nn.Module, hidden: Tensor, targets: Tensor, temperatures: Tensor) -> Scores:
    """Scores of hidden [U, H], made in chunks whose logits are recomputed in the backward pass."""
    parts = [
        checkpoint(
            _score_chunk, head, *(stream[start : start + _CHUNK] for stream in (hidden, targets, temperatures)), use_reentrant=False
        )
        for start in range(0, max(len(targets), 1), _CHUNK)  # an empty pack stays in the graph
    ]
    return Scores(*(torch.cat(stream) for stream in zip(*parts, strict=True)))


def _score_chunk(head: nn.Module, hidden: Tensor, targets: Tensor, temperatures: Tensor) -> tuple[Tensor, Tensor]:
    logits = head(hidden)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperatures[:, None]
    normaliser = logits.logsumexp(-1)
    chosen = logits.gather(-1, targets[:, None]).squeeze(-1)
    with torch.no_grad():
        entropy = normaliser - (torch.softmax(logits, -1) * logits).sum(-1)
    return chosen - normaliser, entropy
