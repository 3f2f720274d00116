"""Merge an adapter into its base's weights, and measure how far policies are from each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clawpipe.model.engines.base import Scores
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.merged import merge_adapter
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.weights import save_model, written_tensors
from clawpipe.play.workers.request import Context


def divergences(
    load: Callable[[PolicySpec], Scores], reference: PolicySpec, others: Sequence[PolicySpec], contexts: Sequence[Context]
) -> list[float | None]:
    """Return the mean KL(reference || other) in nats per token over the positions of the contexts, for each of the others.

    It is None where it is not finite.
    One policy is loaded at a time; the reference's distributions are kept on the CPU (4 bytes per position and token).
    """
    expected = list(_distributions(load(reference), contexts))
    return [_mean_divergence(expected, _distributions(load(other), contexts)) for other in others]


def _distributions(engine: Scores, contexts: Sequence[Context]) -> Iterator[Tensor]:
    """Yield the log-probs (positions, vocabulary) of each context."""
    return (engine.distributions(context.ids, context.positions).cpu() for context in contexts)


def _mean_divergence(expected: Sequence[Tensor], found: Iterator[Tensor]) -> float | None:
    """Return sum_v p (log p - log q), averaged over positions; a negative result is rounding and becomes 0."""
    total = sum((p.exp() * (p - q)).double().sum().item() for p, q in zip(expected, found, strict=True))
    return max(total / sum(map(len, expected)), 0.0) if math.isfinite(total) else None


def merge(base: Path, adapter: Path, dtype: str, directory: Path) -> None:
    """Add an adapter to the weights of `base` and write the model, tokenizer included, as safetensors in `dtype`.

    The base is the full-precision one, however the adapter was trained: in a quantized layer a light update is smaller than
    the distance between two values that the layer can hold, and is rounded away. The sum is made in float32 on the CPU.
    """
    merged: Any = merge_adapter(load_base(base, "float32", torch.device("cpu")), adapter).to(getattr(torch, dtype))
    save_model(merged, written_tensors(merged), directory, base)
