"""Attention over a shared prefix and ragged rows, for batches of conversations that begin alike.

All rows' new tokens travel as one flat sequence through the linear layers (no padding there); here they meet the keys
and values of the shared prefix (held once, read as one matrix product for all rows) and of their own row. It is plain
softmax attention over the concatenation of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from clawpipe.errors import ConfigError

NAME = "clawpipe_rows"
_GROW = 64
_UNSUPPORTED = ("sliding_window", "softcap", "s_aux")


@dataclass
class RowCache:
    """Keys and values of a shared prefix and of `rows` continuations, one entry a layer.

    prefix: (2, H_kv, P, D); rows: (2, R, H_kv, capacity, D); lengths: (R,) tokens held by each row beyond the prefix.
    """

    rows: int
    prefix_length: int = 0
    prefix: list[Tensor] = field(default_factory=list)
    own: list[Tensor] = field(default_factory=list)
    lengths: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    def reserve(self, capacity: int, like: Tensor, heads: int, layer: int) -> Tensor:
        """The layer's row buffer with room for `capacity` tokens a row."""
        if layer == len(self.own):
            self.own.append(like.new_zeros(2, self.rows, heads, 0, like.shape[-1]))
        missing = capacity - self.own[layer].shape[3]
        if missing > 0:
            room = -(-missing // _GROW) * _GROW
            self.own[layer] = torch.cat([self.own[layer], like.new_zeros(2, self.rows, heads, room, like.shape[-1])], dim=3)
        return self.own[layer]


@dataclass
class Placement:
    """Where the flat new tokens belong: row (N,), slot in that row (N,), and column among the row's new tokens (N,)."""

    row: Tensor
    slot: Tensor
    column: Tensor
    width: int
    capacity: int
    visible: Tensor  # (R, width, capacity) True where a new token may look at its row's slot


def attend_rows(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention function for `transformers`: query (1, H, N, D), key and value (1, H_kv, N, D) -> (1, N, H, D)."""
    if used := [name for name in _UNSUPPORTED if kwargs.get(name) is not None]:
        raise ConfigError(f"the embedded engine does not know {used[0]} attention", "model.base", "serve this model with vLLM")
    cache: RowCache = kwargs["row_cache"]
    layer = int(module.layer_idx)  # pyright: ignore[reportArgumentType]
    if kwargs.get("row_placement") is None:
        return _attend_prefix(layer, query, key, value, scaling, cache)
    return _attend_rows(layer, query, key, value, scaling, cache, kwargs["row_placement"])


def _attend_prefix(layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, cache: RowCache) -> tuple[Tensor, None]:
    """The shared prefix itself: ordinary causal attention, whose keys and values are kept."""
    assert layer == len(cache.prefix)
    cache.prefix.append(torch.stack([key[0], value[0]]))
    out = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2), None


def _attend_rows(
    layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, cache: RowCache, place: Placement
) -> tuple[Tensor, None]:
    heads, kv_heads, width, size = query.shape[1], key.shape[1], place.width, query.shape[3]
    group = heads // kv_heads
    own = cache.reserve(place.capacity, key, kv_heads, layer)
    own[0][place.row, :, place.slot] = key[0].transpose(0, 1)
    own[1][place.row, :, place.slot] = value[0].transpose(0, 1)
    keys, values = own[:, :, :, : place.capacity].unbind(0)  # (R, H_kv, T, D)

    rows = query.new_zeros(cache.rows, heads, width, size)
    rows[place.row, :, place.column] = query[0].transpose(0, 1)
    rows = rows.view(cache.rows, kv_heads, group * width, size)
    scores = rows @ keys.transpose(-1, -2) * scaling
    hidden = ~place.visible[:, None, None].expand(-1, 1, group, -1, -1).reshape(cache.rows, 1, group * width, -1)
    scores = scores.float().masked_fill_(hidden, float("-inf"))
    if cache.prefix_length:
        prefix_keys, prefix_values = cache.prefix[layer].unbind(0)  # (H_kv, P, D)
        flat = rows.transpose(0, 1).reshape(kv_heads, -1, size)
        shared = (
            (flat @ prefix_keys.transpose(-1, -2) * scaling).float().view(kv_heads, cache.rows, group * width, -1).transpose(0, 1)
        )
        weights = torch.cat([shared, scores], dim=-1).softmax(-1).to(query.dtype)
        on_prefix, on_own = weights.split([cache.prefix_length, place.capacity], dim=-1)
        out = on_own @ values
        mixed = on_prefix.transpose(0, 1).reshape(kv_heads, -1, cache.prefix_length) @ prefix_values
        out = out + mixed.view(kv_heads, cache.rows, group * width, size).transpose(0, 1)
    else:
        out = scores.softmax(-1).to(query.dtype) @ values
    out = out.reshape(cache.rows, heads, width, size)
    return out[place.row, :, place.column].unsqueeze(0), None


AttentionInterface.register(NAME, attend_rows)
