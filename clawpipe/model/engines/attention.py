"""Attention over a shared prefix and ragged rows, for batches of conversations that begin alike.

All rows' new tokens travel as one flat sequence through the linear layers (no padding there); here they meet the keys
and values of the shared prefix (held once, read as one matrix product for all rows) and of their own row. It is plain
softmax attention over the concatenation of both, with what a family adds: a sliding window, a soft cap, sinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from clawpipe.model.engines.row_cache import Held, Placement, RowCache

NAME = "clawpipe_rows"
_MOST_SCORES = 1 << 26  # of a block of new tokens: 256 MB in float32, and some times that on the way


class Extras(NamedTuple):
    """How a layer attends: scale of scores, tokens that each one sees (itself included), soft cap of scores, and sinks (H,)."""

    scaling: float
    window: int | None
    softcap: float | None
    sinks: Tensor | None


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
    if kwargs.get("row_places") is None:
        cache.prefix[layer] = Held(key[0], value[0])
        return _attend_prefix(query, key, value, extras), None
    return _attend_rows(layer, query, key, value, extras, cache, kwargs["row_places"]), None


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
    layer: int, query: Tensor, key: Tensor, value: Tensor, extras: Extras, cache: RowCache, places: Sequence[Placement]
) -> Tensor:
    """Attend, group by group; each of them writes where its tokens stand in the flat sequence."""
    if len(places) == 1:
        return _attend_group(layer, query[0], key[0], value[0], extras, cache, places[0]).unsqueeze(0)
    out = query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])
    for place in places:
        own = (flat[0][:, place.tokens] for flat in (query, key, value))
        out[0, place.tokens] = _attend_group(layer, *own, extras, cache, place)
    return out


def _attend_group(
    layer: int, query: Tensor, key: Tensor, value: Tensor, extras: Extras, cache: RowCache, place: Placement
) -> Tensor:
    """Attend with a group's new tokens: query (H, N, D), key (H_kv, N, D), value (H_kv, N, D_v) -> (N, H, D_v)."""
    own = place.group.reserve(place.capacity, key, value, layer)
    own.keys[place.row, :, place.slot] = key.transpose(0, 1)
    own.values[place.row, :, place.slot] = value.transpose(0, 1)
    held = Held(*(buffer[:, :, : place.capacity] for buffer in own))
    rows = query.new_zeros(len(place.group.rows), query.shape[0], place.width, query.shape[2])
    rows[place.row, :, place.column] = query.transpose(0, 1)
    hidden, prefix = place.hidden(extras.window, cache.prefix_length), cache.prefix.get(layer)
    step = max(1, _MOST_SCORES // (rows.shape[0] * rows.shape[1] * (cache.prefix_length + place.capacity)))
    blocks = zip(rows.split(step, dim=2), hidden.split(step, dim=1), strict=True)
    out = [_attend_block(block, held, prefix, unseen, extras) for block, unseen in blocks]
    return (out[0] if len(out) == 1 else torch.cat(out, dim=2))[place.row, :, place.column]


def _attend_block(rows: Tensor, own: Held, prefix: Held | None, hidden: Tensor, extras: Extras) -> Tensor:
    """Attend with rows of new tokens (R, H, n, D) to their own keys (R, H_kv, T, D) and those of the prefix (H_kv, P, D).

    Returns:
        (R, H, n, D_v).
    """
    (count, heads, new, size), kv_heads = rows.shape, own.keys.shape[1]
    rows = rows.reshape(count, kv_heads, -1, size)
    scores = rows @ own.keys.transpose(-1, -2)
    if prefix is None:
        out = softmax_weights(scores, hidden, heads, extras).to(rows.dtype) @ own.values
        return out.reshape(count, heads, new, -1)
    length, flat = prefix.keys.shape[1], rows.transpose(0, 1).reshape(kv_heads, -1, size)
    shared = (flat @ prefix.keys.transpose(-1, -2)).view(kv_heads, count, rows.shape[2], -1).transpose(0, 1)
    weights = softmax_weights(torch.cat([shared, scores], dim=-1), hidden, heads, extras).to(rows.dtype)
    on_prefix, on_own = weights.split([length, own.keys.shape[2]], dim=-1)
    mixed = on_prefix.transpose(0, 1).reshape(kv_heads, -1, length) @ prefix.values
    out = on_own @ own.values + mixed.view(kv_heads, count, rows.shape[2], -1).transpose(0, 1)
    return out.reshape(count, heads, new, -1)


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
