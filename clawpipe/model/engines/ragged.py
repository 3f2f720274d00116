"""Attention of rows that join and leave a batch one by one, with separate buffers of keys and values for each row.

All rows' new tokens travel as one flat sequence through the linear layers, whatever their number; here each meets the keys and
values of its own row. Rows have buffers of their own, so one joins or leaves without moving the others, and a long one costs the
short ones nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from clawpipe.model.engines.attention import Extras, attend_rows, softmax_weights
from clawpipe.model.engines.row_cache import Held

NAME = "clawpipe_ragged"
_GROW = 64  # tokens; a buffer has room for a multiple of this, at least an eighth of what it holds
_ONE_DNN = torch.ops.mkldnn


class RowKeys:
    """Keys and values of one row: `length` tokens in buffers that have room for `capacity`."""

    def __init__(self) -> None:
        self.length, self.capacity = 0, 0
        self._layers: dict[int, Held] = {}

    @staticmethod
    def room(tokens: int) -> int:
        """Return the capacity of a row that holds so many tokens."""
        return -(-max(tokens, tokens + tokens // 8) // _GROW) * _GROW if tokens else 0

    @property
    def bytes(self) -> int:
        """Size of the buffers."""
        return sum(buffer.nbytes for held in self._layers.values() for buffer in held)

    def reserve(self, tokens: int) -> int:
        """Make room for `tokens` in all; return how many tokens' buffers are freed for larger ones."""
        if tokens <= self.capacity:
            return 0
        freed, self.capacity = self.capacity, self.room(tokens)
        return freed

    def copy_prefix(self, other: RowKeys, length: int) -> None:
        """Take the first tokens of another row."""
        self.reserve(length)
        self.length = length
        for layer, held in other._layers.items():
            own = self._buffers(layer, held.keys, held.values)
            for mine, theirs in zip(own, held, strict=True):
                mine[:, :length] = theirs[:, :length]

    def append(self, layer: int, key: Tensor, value: Tensor) -> Held:
        """Hold new keys and values (H_kv, n, D) of a layer; return all of the layer (H_kv, length + n, D). `length` stays."""
        held = self._buffers(layer, key, value)
        end = self.length + key.shape[1]
        held.keys[:, self.length : end] = key
        held.values[:, self.length : end] = value
        return Held(held.keys[:, :end], held.values[:, :end])

    def _buffers(self, layer: int, key: Tensor, value: Tensor) -> Held:
        """Return a layer's buffers with room for `capacity` tokens; what the first `length` hold is kept."""
        held = self._layers.get(layer)
        if held is None or held.keys.shape[1] < self.capacity:
            fresh = Held(*(like.new_empty(like.shape[0], self.capacity, like.shape[-1]) for like in (key, value)))
            if held is not None:
                for new, old in zip(fresh, held, strict=True):
                    new[:, : self.length] = old[:, : self.length]
            self._layers[layer] = held = fresh
        return held


class Span(NamedTuple):
    """A row's new tokens: their place [start, end) in the flat sequence."""

    keys: RowKeys
    start: int
    end: int


def attend_ragged(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend, for `transformers`: query (1, H, N, D), key (1, H_kv, N, D), value (1, H_kv, N, D_v) -> (1, N, H, D_v).

    Without `spans` it attends as the batch engine does, which shares the model.
    """
    spans: Sequence[Span] | None = kwargs.get("spans")
    if spans is None:
        return attend_rows(module, query, key, value, attention_mask, scaling, sliding_window, softcap, s_aux, **kwargs)
    layer = int(module.layer_idx)  # pyright: ignore[reportArgumentType]
    extras = Extras(query.shape[-1] ** -0.5 if scaling is None else scaling, sliding_window, softcap, s_aux)
    parts = []
    for keys, start, end in spans:
        held = keys.append(layer, key[0, :, start:end], value[0, :, start:end])
        parts.append(_attend(query[:, :, start:end], held, extras))
    return torch.cat(parts, dim=2).transpose(1, 2), None


def _attend(query: Tensor, held: Held, extras: Extras) -> Tensor:
    """Attend with a row's last tokens (1, H, n, D) to the T that it holds, these included; return (1, H, n, D_v)."""
    (heads, new), total = query.shape[1:3], held.keys.shape[1]
    first = 0 if extras.window is None else max(0, total - new + 1 - extras.window)  # what no new token sees is not read
    keys, values = held.keys[None, :, first:], held.values[None, :, first:]
    hidden = _hidden(new, total - first, extras.window, query.device)
    if extras.softcap is None and extras.sinks is None:
        seen = None if hidden is None else ~hidden
        return nn.functional.scaled_dot_product_attention(query, keys, values, seen, scale=extras.scaling, enable_gqa=True)
    scores = query.reshape(1, keys.shape[1], -1, query.shape[-1]) @ keys.transpose(-1, -2)
    mask = torch.zeros(1, new, 1, dtype=torch.bool, device=query.device) if hidden is None else hidden[None]
    out = softmax_weights(scores, mask, heads, extras).to(query.dtype) @ values
    return out.reshape(1, heads, new, -1)


def _hidden(new: int, total: int, window: int | None, device: torch.device) -> Tensor | None:
    """Return a mask (new, total), True where one of the last `new` tokens must not look; None if each sees all."""
    if new == 1:
        return None
    place = torch.arange(total, device=device)
    own = place[-new:, None]
    return place > own if window is None else (place > own) | (place <= own - window)


def quicken_linears(model: nn.Module) -> int:
    """Let float32 linear layers on a CPU compute with oneDNN, about twice as fast as MKL's products of few rows; return how many.

    The weights stay as they are; outputs differ by rounding.
    """
    if not torch.backends.mkldnn.is_available() or not hasattr(_ONE_DNN, "_linear_pointwise"):
        return 0
    layers = [layer for layer in model.modules() if type(layer) is nn.Linear and "forward" not in vars(layer)]
    plain = [layer for layer in layers if _is_plain(layer.weight)]
    for layer in plain:
        layer.forward = _Product(layer)
    return len(plain)


@contextmanager
def restored_linears(model: nn.Module) -> Iterator[None]:
    """After the block the model computes as before it, whatever has quickened its layers or replaced its attention."""
    present = model.config._attn_implementation  # pyright: ignore[reportAttributeAccessIssue]
    plain = [layer for layer in model.modules() if "forward" not in vars(layer)]
    try:
        yield
    finally:
        for layer in plain:
            vars(layer).pop("forward", None)
        model.set_attn_implementation(present)  # pyright: ignore[reportCallIssue]


def _is_plain(weight: Tensor) -> bool:
    return type(weight.data) is Tensor and weight.device.type == "cpu" and weight.dtype == torch.float32


class _Product:
    """The forward of a linear layer."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer

    def __call__(self, input: Tensor) -> Tensor:
        return _ONE_DNN._linear_pointwise(input, self._layer.weight, self._layer.bias, "none", [], "")


AttentionInterface.register(NAME, attend_ragged)
