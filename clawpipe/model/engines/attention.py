"""Attention over a shared prefix and ragged rows, for batches of conversations that begin alike.

All rows' new tokens travel as one flat sequence through the linear layers (no padding there); here they meet the keys
and values of the shared prefix (held once, read as one matrix product for all rows) and of their own row. It is plain
softmax attention over the concatenation of both, with what a family adds: a sliding window, a soft cap, sinks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

NAME = "clawpipe_rows"
_GROW = 64


class Held(NamedTuple):
    """Keys (..., D) and values (..., D_v) of one layer."""

    keys: Tensor
    values: Tensor


class Extras(NamedTuple):
    """How a layer attends: scale of scores, tokens that each one sees (itself included), soft cap of scores, and sinks (H,)."""

    scaling: float
    window: int | None
    softcap: float | None
    sinks: Tensor | None


@dataclass
class RowCache:
    """Keys and values of a shared prefix and of `rows` continuations, by layer.

    prefix: (H_kv, P, D); own: (R, H_kv, capacity, D); lengths: (R,) tokens held by each row beyond the prefix.
    """

    rows: int
    prefix_length: int = 0
    prefix: dict[int, Held] = field(default_factory=dict)
    own: dict[int, Held] = field(default_factory=dict)
    lengths: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    def reserve(self, capacity: int, key: Tensor, value: Tensor, layer: int) -> Held:
        """Return the layer's row buffers, with room for `capacity` tokens per row."""
        if layer not in self.own:
            self.own[layer] = Held(*(like.new_zeros(self.rows, like.shape[1], 0, like.shape[-1]) for like in (key, value)))
        missing = capacity - self.own[layer].keys.shape[2]
        if missing > 0:
            room = -(-missing // _GROW) * _GROW
            self.own[layer] = Held(*(nn.functional.pad(held, (0, 0, 0, room)) for held in self.own[layer]))
        return self.own[layer]

    def copy_rows(self, source: list[int]) -> None:
        """Copy keys and values between rows: row r gets those of row `source[r]`."""
        for layer in self.own.values():
            for held in layer:
                held.copy_(held[source])
        self.lengths = self.lengths[source]


@dataclass
class Placement:
    """Where the flat new tokens belong: row (N,), slot in that row (N,), and column among the row's new tokens (N,)."""

    row: Tensor
    slot: Tensor
    column: Tensor
    width: int
    capacity: int
    reach: Tensor  # (R, width) the slot of each row's new tokens
    _hidden: dict[int | None, Tensor] = field(default_factory=dict)

    def hidden(self, window: int | None, prefix: int) -> Tensor:
        """Return a mask (R, width, T), True where a new token must not attend, over the last T of the prefix and slots."""
        if window not in self._hidden:
            reach = self.reach[:, :, None]
            place = torch.arange(0 if window is None else -prefix, self.capacity, device=reach.device)
            self._hidden[window] = place > reach if window is None else (place > reach) | (place <= reach - window)
        return self._hidden[window]


def attend_rows(
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
    """Attend, for `transformers`: query (1, H, N, D), key (1, H_kv, N, D), value (1, H_kv, N, D_v) -> (1, N, H, D_v)."""
    cache: RowCache = kwargs["row_cache"]
    layer = int(module.layer_idx)  # pyright: ignore[reportArgumentType]
    extras = Extras(query.shape[-1] ** -0.5 if scaling is None else scaling, sliding_window, softcap, s_aux)
    if kwargs.get("row_placement") is None:
        cache.prefix[layer] = Held(key[0], value[0])
        return _attend_prefix(query, key, value, extras), None
    return _attend_rows(layer, query, key, value, extras, cache, kwargs["row_placement"]), None


def _attend_prefix(query: Tensor, key: Tensor, value: Tensor, extras: Extras) -> Tensor:
    """Attend causally within the shared prefix."""
    (heads, length), kv_heads = query.shape[1:3], key.shape[1]
    if extras.softcap is None and extras.sinks is None and (extras.window is None or extras.window >= length):
        out = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=extras.scaling, enable_gqa=True)
        return out.transpose(1, 2)
    place = torch.arange(length, device=query.device)
    hidden = place > place[:, None]
    if extras.window is not None:
        hidden |= place <= place[:, None] - extras.window
    scores = query.reshape(1, kv_heads, -1, query.shape[-1]) @ key.transpose(-1, -2)
    out = softmax_weights(scores, hidden[None], heads, extras).to(query.dtype) @ value
    return out.reshape(1, heads, length, -1).transpose(1, 2)


def _attend_rows(
    layer: int, query: Tensor, key: Tensor, value: Tensor, extras: Extras, cache: RowCache, place: Placement
) -> Tensor:
    heads, kv_heads, width, size = query.shape[1], key.shape[1], place.width, query.shape[3]
    own = cache.reserve(place.capacity, key, value, layer)
    own.keys[place.row, :, place.slot] = key[0].transpose(0, 1)
    own.values[place.row, :, place.slot] = value[0].transpose(0, 1)
    keys, values = (held[:, :, : place.capacity] for held in own)  # (R, H_kv, T, D)

    rows = query.new_zeros(cache.rows, heads, width, size)
    rows[place.row, :, place.column] = query[0].transpose(0, 1)
    rows = rows.view(cache.rows, kv_heads, -1, size)
    scores = rows @ keys.transpose(-1, -2)
    hidden = place.hidden(extras.window, cache.prefix_length)
    if cache.prefix_length:
        prefix = cache.prefix[layer]  # (H_kv, P, D)
        flat = rows.transpose(0, 1).reshape(kv_heads, -1, size)
        shared = (flat @ prefix.keys.transpose(-1, -2)).view(kv_heads, cache.rows, rows.shape[2], -1).transpose(0, 1)
        weights = softmax_weights(torch.cat([shared, scores], dim=-1), hidden, heads, extras).to(query.dtype)
        on_prefix, on_own = weights.split([cache.prefix_length, place.capacity], dim=-1)
        mixed = on_prefix.transpose(0, 1).reshape(kv_heads, -1, cache.prefix_length) @ prefix.values
        out = on_own @ values + mixed.view(kv_heads, cache.rows, rows.shape[2], -1).transpose(0, 1)
    else:
        out = softmax_weights(scores, hidden, heads, extras).to(query.dtype) @ values
    out = out.reshape(cache.rows, heads, width, -1)
    return out[place.row, :, place.column].unsqueeze(0)


def softmax_weights(scores: Tensor, hidden: Tensor, heads: int, extras: Extras) -> Tensor:
    """Return float32 attention weights (R, H_kv, H / H_kv * width, T) for products of the same shape.

    Args:
        hidden: (R, width, last of the T) True where a token must not look.
    """
    (rows, kv_heads, _, columns), (_, width, last) = scores.shape, hidden.shape
    scores = (scores * extras.scaling).float()
    if extras.softcap is not None:
        scores = torch.tanh(scores / extras.softcap) * extras.softcap
    grouped = scores.view(rows, kv_heads, heads // kv_heads, width, columns)
    grouped[..., columns - last :].masked_fill_(hidden[:, None, None], float("-inf"))
    if extras.sinks is None:
        return scores.softmax(-1)
    sinks = extras.sinks.float().reshape(1, kv_heads, -1, 1, 1).expand(rows, -1, -1, width, -1)
    return torch.cat([grouped, sinks], dim=-1).softmax(-1)[..., :-1].reshape(scores.shape)


AttentionInterface.register(NAME, attend_rows)
