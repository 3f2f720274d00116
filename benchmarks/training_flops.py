"""The floating-point operations that an optimizer step needs, and this machine's rate for matrix products of those shapes.

A multiplication and an addition count as two. For T tokens of a pack, P pairs of a token and one that it sees (including
itself: the sum of depth + 1), U scores asked of the head, a layer's query width D, vocabulary V, hidden width H:

    frozen linear, in x out     forward 2 T in out;  backward the same for the input's gradient;   none for the weight's
    trained linear, in x out    forward 2 T in out;  backward twice that: the input's and the weight's gradient
    adapter of rank r           two trained linears, in x r and r x out
    attention, per layer        forward 4 P D (scores, and values mixed);  backward 8 P D (dV, dP, dQ, dK)
    head                        a linear over U rows, H x V

Recomputation (gradient checkpointing, a head in chunks) is not counted, because it is the trainer's choice; elementwise work is
not counted either. The time that the FLOPs need is the sum over shapes of FLOPs / rate, where a shape's rate is the best of
several multiplications of that shape with all threads in the model's dtype; attention counts at the rate of the widest frozen
layer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_REPEATS = 7


class Product(NamedTuple):
    """A product [rows, inner] @ [inner, outer]."""

    rows: int
    inner: int
    outer: int

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.inner * self.outer


class Need(NamedTuple):
    """FLOPs by matrix product, and of attention."""

    products: Counter[Product]
    attention: int

    @property
    def flops(self) -> int:
        return sum(self.products.values()) + self.attention


def needed(model: nn.Module, packs: Sequence[Mapping[str, Tensor]]) -> Need:
    """Return the FLOPs of one forward and backward pass over `packs` from `build_pack`, for a model with or without LoRA."""
    products: Counter[Product] = Counter()
    attention = 0
    for pack in packs:
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and not name.endswith("lm_head"):
                _count(products, module, pack["input_ids"].numel())
        _count(products, _head(model), len(pack["targets"]))
        attention += 12 * int((pack["position_ids"] + 1).sum()) * _query_width(model)
    return Need(products, attention)


def _count(products: Counter[Product], layer: nn.Linear, rows: int) -> None:
    product = Product(rows, layer.in_features, layer.out_features)
    if rows:
        products[product] += product.flops * (3 if layer.weight.requires_grad else 2)


def _head(model: Any) -> nn.Linear:
    return model.get_output_embeddings()


def _query_width(model: Any) -> int:
    """Return the query width summed over the layers."""
    config = model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers * config.num_attention_heads * size


def seconds_needed(need: Need, dtype: torch.dtype = torch.float32, device: str = "cpu") -> float:
    """Return the time that the FLOPs take at the measured rates."""
    rates = {product: matmul_rate(product, dtype, device) for product in need.products}
    widest = max(need.products, key=lambda product: (product.rows, min(product.inner, product.outer), product.flops))
    return sum(flops / rates[product] for product, flops in need.products.items()) + need.attention / rates[widest]


def matmul_rate(product: Product, dtype: torch.dtype, device: str) -> float:
    """Return FLOP/s, the best of several measurements."""
    left = torch.randn(product.rows, product.inner, dtype=dtype, device=device)
    right = torch.randn(product.outer, product.inner, dtype=dtype, device=device)
    best = min(_seconds(left, right) for _ in range(_REPEATS))
    return product.flops / best


def _seconds(left: Tensor, right: Tensor) -> float:
    start = time.perf_counter()
    nn.functional.linear(left, right)
    if left.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start
