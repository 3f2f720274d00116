"""Attention within a pack: each token attends to itself and to its ancestors in the token tree.

A tree of one branch is an ordinary row, whose causal attention needs no mask. Other trees get a dense mask, or on CUDA a
block mask, with which FlexAttention skips blocks of tokens that do not see each other. On a CPU, which has no such kernel, each
block of tokens attends with the keys that one of them sees: a few hundred of a pack's thousands.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from clawpipe.errors import DataError
from clawpipe.model.policy.forward import replace_attention
from clawpipe.model.policy.layout import layout_of, steady_length

DENSE, BLOCKS = "clawpipe_dense", "clawpipe_blocks"
_BLOCK = 128  # tokens; FlexAttention's default

_log = logging.getLogger(__name__)


class Seen(NamedTuple):
    """What a block of tokens sees: those from `start` to `stop`, indices of the K tokens that one of them sees, and their mask."""

    start: int
    stop: int
    keys: Tensor  # int [K]
    mask: Tensor  # [1, 1, stop - start, K]: 0 where a token sees a key, else -inf


@dataclass
class PackTree:
    """The mask of a pack, built once for each window size.

    ends [T]: see `TokenTree.ends`. depths [T]: position of a token in its row. window: tokens that a layer sees, including itself.
    """

    ends: Tensor
    depths: Tensor
    dtype: torch.dtype
    by_blocks: bool
    _masks: dict[int | None, Tensor | BlockMask] = field(default_factory=dict)
    _seen: dict[int | None, list[Seen]] = field(default_factory=dict)

    def mask(self, window: int | None) -> Tensor | BlockMask:
        window = self._felt(window)
        if window not in self._masks:
            shown = blocks(self.ends, self.depths, window) if self.by_blocks else visible(self.ends, self.depths, window)
            self._masks[window] = self._added(shown) if isinstance(shown, Tensor) else shown
        return self._masks[window]

    def seen(self, window: int | None) -> list[Seen]:
        """Return what each block of tokens sees, in their order."""
        window = self._felt(window)
        if window not in self._seen:
            self._seen[window] = [self._block(start, window) for start in range(0, len(self.ends), _BLOCK)]
        return self._seen[window]

    def _felt(self, window: int | None) -> int | None:
        """Return None for a window that no row is as long as."""
        return None if window is not None and int(self.depths.max()) < window else window

    def _block(self, start: int, window: int | None) -> Seen:
        stop = min(start + _BLOCK, len(self.ends))
        keys = (self.ends[:stop] > start).nonzero()[:, 0]  # the block's own tokens, and ancestors of one of them
        shown = visible(self.ends, self.depths, window, slice(start, stop))[..., keys]
        return Seen(start, stop, keys, self._added(shown))

    def _added(self, shown: Tensor) -> Tensor:
        return torch.zeros(shown.shape, dtype=self.dtype, device=shown.device).masked_fill_(~shown, -torch.inf)


def _attention(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an attention of transformers' interface: FlexAttention where there is a block mask, `original` where there is none."""

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | BlockMask | None,
        sliding_window: int | None = None,
        pack_tree: PackTree | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        biased = kwargs.get("position_bias") is not None  # which is a square over all tokens
        if pack_tree is not None and query.device.type == "cpu" and not pack_tree.by_blocks and not biased:
            forward = _grouped if original is sdpa_attention_forward else original
            parts = [_of_block(seen, query, key, value) for seen in pack_tree.seen(sliding_window)]
            return torch.cat([forward(module, *part, **kwargs)[0] for part in parts], dim=1), None
        if pack_tree is not None and sliding_window is not None:
            attention_mask = pack_tree.mask(sliding_window)
        whole: Any = flex_attention_forward if isinstance(attention_mask, BlockMask) else original
        return whole(module, query, key, value, attention_mask, **kwargs)

    return attend


def _of_block(seen: Seen, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries, keys, values and mask of a block. Queries are [1, H, T, D], keys and values the same of fewer heads."""
    keys, values = (stream.index_select(2, seen.keys) for stream in (key, value))
    return query[:, :, seen.start : seen.stop], keys, values, seen.mask


def _grouped(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """PyTorch's attention [1, T, H, D]. transformers' call of it repeats keys and values for each head, and keeps them so."""
    out = nn.functional.scaled_dot_product_attention(query, key, value, attention_mask, dropout, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2), None


def _eager(module: nn.Module, *arguments: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Call the eager attention that the model's module defines, including soft caps and sinks."""
    return sys.modules[type(module).__module__].eager_attention_forward(module, *arguments, **kwargs)


_SUPPORTED = {"sdpa": (sdpa_attention_forward, sdpa_mask), "eager": (_eager, eager_mask)}
for _name, (_function, _mask) in _SUPPORTED.items():
    for _form in (DENSE, BLOCKS):
        AttentionInterface.register(f"{_form}_{_name}", _attention(_function))
        AttentionMaskInterface.register(f"{_form}_{_name}", _mask)


def use_packs(model: Any, device: torch.device) -> None:
    """Make a model that will run on `device` attend by token trees, if its rows may share a sequence.

    On CUDA it uses block masks, if FlexAttention works there.
    """
    original = model.config._attn_implementation
    if layout_of(model) == "apart" or original not in _SUPPORTED:
        return
    dropout = getattr(model.config.get_text_config(), "attention_dropout", 0.0)  # FlexAttention does not support it
    flexible = device.type == "cuda" and model._supports_flex_attn and not dropout and blocks_work(model, device)
    replace_attention(model, f"{BLOCKS if flexible else DENSE}_{original}")


def packs(model: Any) -> bool:
    """Return whether `model` computes several rows in one sequence."""
    return str(model.config._attn_implementation).startswith((DENSE, BLOCKS))


def require_steady(model: Any, length: int) -> None:
    """Raise if a row is so long that shared tokens would get different positions in different rows.

    Raises:
        DataError: a row is longer than the length up to which the model's positions are the same.
    """
    limit = steady_length(model)
    if length > limit:
        raise DataError(
            f"a row of {length} tokens shares a pack; in this model rows of more than {limit} have other positions from the start",
            "curation.max_tokens",
            f"set it to at most {limit}",
        )


def tree_of(model: Any, ends: Tensor, depths: Tensor) -> PackTree:
    """Return the token tree as the argument `pack_tree` of a model that `packs`."""
    by_blocks = model.config._attn_implementation.startswith(BLOCKS)
    return PackTree(ends, depths, _dtype(model), by_blocks)


def blocks_work(model: Any, device: torch.device) -> bool:
    """Return whether FlexAttention's kernels compile on `device` and run forward and backward, for the model's head sizes.

    They need Triton, a C compiler and a GPU that Triton supports; any failure counts as missing support.
    """
    config = model.config.get_text_config()
    attend = _attention(sdpa_attention_forward)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    counts = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
    try:
        for tokens in (2 * _BLOCK, 3 * _BLOCK + 1):  # a second length compiles a kernel for all further lengths
            shapes = ((1, heads, tokens, width) for heads in counts)
            query, key, value = (torch.ones(shape, dtype=_dtype(model), device=device, requires_grad=True) for shape in shapes)
            place = torch.arange(tokens, device=device)
            mask = blocks((place + 1).clamp_min(_BLOCK), place, None)
            out, _ = attend(model, query, key, value, mask)
            out.sum().backward()
    except Exception as error:  # the compiler, Triton, the driver or an import may fail
        _log.warning("packs attend through dense masks, for FlexAttention does not work here: %s", str(error).partition("\n")[0])
        return False
    return True


def visible(ends: Tensor, depths: Tensor, window: int | None = None, rows: slice = slice(None)) -> Tensor:
    """Return bool [1, 1, T, T] from a pack's `ends` and `depths` [T]: row i shows node i and its last `window` ancestors. Only the
    R rows in `rows` are computed, [1, 1, R, T]."""
    node = torch.arange(len(ends), device=ends.device)
    row = node[rows, None]
    shown = (node <= row) & (row < ends)
    if window is not None:
        shown &= depths[rows, None] - depths < window
    return shown[None, None]


def blocks(ends: Tensor, depths: Tensor, window: int | None = None) -> BlockMask:
    """Return the block mask of `visible` without building the T x T mask: the bounds of each block's ends and depths decide which
    blocks are visible. A block may be computed in which no token is visible."""
    count = -(-len(ends) // _BLOCK)
    first = torch.arange(count, device=ends.device) * _BLOCK  # a block's first token
    earliest, latest = _bounds(ends, count)
    before = first < first[:, None]
    whole = before & (first[:, None] + _BLOCK <= earliest)  # the last query block is never whole unless full: no end is beyond it
    some = (before & (first[:, None] < latest)) | torch.eye(count, dtype=torch.bool, device=ends.device)
    if window is not None:
        shallowest, deepest = _bounds(depths, count)
        whole &= deepest[:, None] - shallowest < window
        some &= shallowest[:, None] - deepest < window

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        shown = (key <= query) & (query < ends[key])
        return shown if window is None else shown & (depths[query] - depths[key] < window)

    return BlockMask.from_kv_blocks(
        *_listed(some & ~whole), *_listed(whole & some), BLOCK_SIZE=_BLOCK, mask_mod=sees, seq_lengths=(len(ends), len(ends))
    )


def _bounds(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest value of each of `count` blocks of values [T]; the last block is padded with 0."""
    filled = nn.functional.pad(values, (0, count * _BLOCK - len(values))).view(count, _BLOCK)
    return filled.amin(1), filled.amax(1)


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return per row of `chosen` [Q, K] the number of chosen blocks, int [1, 1, Q], and indices, chosen first, int [1, 1, Q, K]."""
    numbers = chosen.int().argsort(dim=1, descending=True, stable=True)
    return chosen.sum(1, dtype=torch.int32)[None, None], numbers.int()[None, None]


def _dtype(model: Any) -> torch.dtype:
    """Return the dtype that the model computes in: that of its first floating-point parameter, an embedding or a norm."""
    return next(parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
