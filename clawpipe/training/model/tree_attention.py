"""How the tokens of a pack see each other: each its ancestors in the token tree, and itself.

A tree of one branch is an ordinary row, whose attention is causal and needs no mask. Other trees get a dense mask, or on
CUDA a block mask, with which FlexAttention leaves out blocks of tokens that do not see each other at all.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from clawpipe.errors import DataError
from clawpipe.policy.forward import replace_attention
from clawpipe.policy.layout import layout_of, steady_length

DENSE, BLOCKS = "clawpipe_dense", "clawpipe_blocks"
_BLOCK = 128  # tokens; FlexAttention's own default

_log = logging.getLogger(__name__)


@dataclass
class PackTree:
    """Which tokens of a pack see each other, made for layers of each window once.

    ends [T]: see `TokenTree.ends`. depths [T]: a token's place in its row. window: tokens that a layer sees, itself included.
    """

    ends: Tensor
    depths: Tensor
    dtype: torch.dtype
    by_blocks: bool
    _masks: dict[int | None, Tensor | BlockMask] = field(default_factory=dict)

    def mask(self, window: int | None) -> Tensor | BlockMask:
        if window is not None and int(self.depths.max()) < window:
            window = None
        if window not in self._masks:
            self._masks[window] = blocks(self.ends, self.depths, window) if self.by_blocks else self._dense(window)
        return self._masks[window]

    def _dense(self, window: int | None) -> Tensor:
        shown = visible(self.ends, self.depths, window)
        return torch.zeros(shown.shape, dtype=self.dtype, device=shown.device).masked_fill_(~shown, -torch.inf)


def _attention(own: Callable[..., Any]) -> Callable[..., Any]:
    """Attention of transformers' interface: FlexAttention where there is a block mask, a family's own where there is none."""

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
        if pack_tree is not None and sliding_window is not None:
            attention_mask = pack_tree.mask(sliding_window)
        forward: Any = flex_attention_forward if isinstance(attention_mask, BlockMask) else own
        return forward(module, query, key, value, attention_mask, **kwargs)

    return attend


def _eager(module: nn.Module, *arguments: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The attention that a family's own file spells out, soft caps and sinks included."""
    return sys.modules[type(module).__module__].eager_attention_forward(module, *arguments, **kwargs)


_OWN = {"sdpa": (sdpa_attention_forward, sdpa_mask), "eager": (_eager, eager_mask)}
for _name, (_function, _mask) in _OWN.items():
    for _form in (DENSE, BLOCKS):
        AttentionInterface.register(f"{_form}_{_name}", _attention(_function))
        AttentionMaskInterface.register(f"{_form}_{_name}", _mask)


def use_packs(model: Any, device: torch.device) -> None:
    """Have a model of transformers that is to run on `device` attend by token trees, where its rows may share a sequence.

    On CUDA it does so by blocks, if FlexAttention works there.
    """
    own = model.config._attn_implementation
    if layout_of(model) == "apart" or own not in _OWN:
        return
    dropout = getattr(model.config.get_text_config(), "attention_dropout", 0.0)  # which FlexAttention does not know
    flexible = device.type == "cuda" and model._supports_flex_attn and not dropout and blocks_work(model, device)
    replace_attention(model, f"{BLOCKS if flexible else DENSE}_{own}")


def packs(model: Any) -> bool:
    """Whether `model` computes rows side by side in one sequence."""
    return str(model.config._attn_implementation).startswith((DENSE, BLOCKS))


def require_steady(model: Any, length: int) -> None:
    """Raise where tokens that rows share are not the same in all of them.

    Raises:
        DataError: a row is so long that the model gives all its tokens other positions.
    """
    limit = steady_length(model)
    if length > limit:
        raise DataError(
            f"a row of {length} tokens shares a pack; in this model rows of more than {limit} have other positions from the start",
            "curation.max_tokens",
            f"set it to at most {limit}",
        )


def tree_of(model: Any, ends: Tensor, depths: Tensor) -> PackTree:
    """What tells a model that `packs` how the tokens of a pack see each other."""
    by_blocks = model.config._attn_implementation.startswith(BLOCKS)
    return PackTree(ends, depths, _dtype(model), by_blocks)


def blocks_work(model: Any, device: torch.device) -> bool:
    """Whether FlexAttention's kernels compile on `device` and run both ways, for heads as the model has them.

    They take Triton, a C compiler and a GPU that Triton knows; what is missing shows when they are tried, in whatever way.
    """
    config = model.config.get_text_config()
    attend = _attention(sdpa_attention_forward)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    counts = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
    try:
        for tokens in (2 * _BLOCK, 3 * _BLOCK + 1):  # another length is another kernel, one for all that follow
            shapes = ((1, heads, tokens, width) for heads in counts)
            query, key, value = (torch.ones(shape, dtype=_dtype(model), device=device, requires_grad=True) for shape in shapes)
            place = torch.arange(tokens, device=device)
            mask = blocks((place + 1).clamp_min(_BLOCK), place, None)
            out, _ = attend(model, query, key, value, mask)
            out.sum().backward()
    except Exception as error:  # the compiler's, Triton's, the driver's, or an import's
        _log.warning("packs attend through dense masks, for FlexAttention does not work here: %s", str(error).partition("\n")[0])
        return False
    return True


def visible(ends: Tensor, depths: Tensor, window: int | None = None) -> Tensor:
    """bool [1, 1, T, T] from a pack's `ends` and `depths` [T]: row i shows node i and its ancestors, of a window the last ones."""
    node = torch.arange(len(ends), device=ends.device)
    shown = (node <= node[:, None]) & (node[:, None] < ends)
    if window is not None:
        shown &= depths[:, None] - depths < window
    return shown[None, None]


def blocks(ends: Tensor, depths: Tensor, window: int | None = None) -> BlockMask:
    """`visible` by blocks, without ever holding T x T of it: what a block shows follows from the bounds of its tokens' ends and
    depths. A block may be looked at of which, in the end, nothing shows."""
    count = -(-len(ends) // _BLOCK)
    first = torch.arange(count, device=ends.device) * _BLOCK  # a block's first token
    earliest, latest = _bounds(ends, count)
    before = first < first[:, None]
    whole = before & (first[:, None] + _BLOCK <= earliest)  # a query block that is not full never is: no end lies behind it
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
    """Smallest and largest of each of `count` blocks of values [T], the last one filled up with 0."""
    filled = nn.functional.pad(values, (0, count * _BLOCK - len(values))).view(count, _BLOCK)
    return filled.amin(1), filled.amax(1)


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row of `chosen` [Q, K] holds, int [1, 1, Q], and their numbers, those first, int [1, 1, Q, K]."""
    numbers = chosen.int().argsort(dim=1, descending=True, stable=True)
    return chosen.sum(1, dtype=torch.int32)[None, None], numbers.int()[None, None]


def _dtype(model: Any) -> torch.dtype:
    """The one that the model computes in; its first floating-point parameter is an embedding or a norm."""
    return next(parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
