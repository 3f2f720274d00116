"""How the tokens of a pack see each other: each its ancestors in the token tree, and itself.

A tree of one branch is an ordinary row, whose attention is causal and needs no mask. Other trees get a dense mask, or on
CUDA a block mask, with which FlexAttention leaves out blocks of tokens that do not see each other at all.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

BLOCKS = "clawpipe_blocks"
_BLOCK = 128  # tokens; FlexAttention's own default

_log = logging.getLogger(__name__)


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | BlockMask | None, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """Attention of transformers' interface: FlexAttention where there is a block mask, SDPA where there is none."""
    forward: Any = flex_attention_forward if isinstance(attention_mask, BlockMask) else sdpa_attention_forward
    return forward(module, query, key, value, attention_mask, **kwargs)


AttentionInterface.register(BLOCKS, attend)
AttentionMaskInterface.register(BLOCKS, sdpa_mask)


def use_blocks(model: Any, device: torch.device) -> None:
    """Have a model of transformers on `device` attend by blocks, if it is CUDA and FlexAttention works there."""
    dropout = getattr(model.config, "attention_dropout", 0.0)  # which FlexAttention does not know
    if device.type == "cuda" and model._supports_flex_attn and not dropout and blocks_work(model, device):
        model.set_attn_implementation(BLOCKS)


def blocks_work(model: Any, device: torch.device) -> bool:
    """Whether FlexAttention's kernels compile on `device` and run both ways, for heads as the model has them.

    They take Triton, a C compiler and a GPU that Triton knows; what is missing shows when they are tried, in whatever way.
    """
    config = model.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    counts = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
    try:
        for tokens in (2 * _BLOCK, 3 * _BLOCK + 1):  # another length is another kernel, one for all that follow
            shapes = ((1, heads, tokens, width) for heads in counts)
            query, key, value = (torch.ones(shape, dtype=_dtype(model), device=device, requires_grad=True) for shape in shapes)
            mask = blocks(torch.arange(1, tokens + 1, device=device).clamp_min(_BLOCK))
            out, _ = attend(model, query, key, value, mask)
            out.sum().backward()
    except Exception as error:  # the compiler's, Triton's, the driver's, or an import's
        _log.warning("packs attend through dense masks, for FlexAttention does not work here: %s", str(error).partition("\n")[0])
        return False
    return True


def mask_of(model: Any, ends: Tensor) -> Tensor | BlockMask | None:
    """What `model` takes as `attention_mask` for a pack with `ends` [T], see `TokenTree.ends`; None means causal."""
    if int(ends.min()) == len(ends):
        return None
    if model.config._attn_implementation == BLOCKS:
        return blocks(ends)
    shown = visible(ends)
    return torch.zeros(shown.shape, dtype=_dtype(model), device=shown.device).masked_fill_(~shown, -torch.inf)


def visible(ends: Tensor) -> Tensor:
    """bool [1, 1, T, T] from `TokenTree.ends` [T]: row i shows node i's ancestors and itself."""
    node = torch.arange(len(ends), device=ends.device)
    return ((node <= node[:, None]) & (node[:, None] < ends))[None, None]


def blocks(ends: Tensor) -> BlockMask:
    """`visible` by blocks, without ever holding T x T of it: what a block shows follows from the bounds of its tokens' ends."""
    count = -(-len(ends) // _BLOCK)
    padding = (0, count * _BLOCK - len(ends))
    first = torch.arange(count, device=ends.device) * _BLOCK  # a block's first token
    latest = torch.nn.functional.pad(ends, padding, value=0).view(count, _BLOCK).amax(1)
    earliest = torch.nn.functional.pad(ends, padding, value=0).view(count, _BLOCK).amin(1)
    before = first < first[:, None]
    whole = before & (first[:, None] + _BLOCK <= earliest)  # a query block that is not full never is: no end lies behind it
    some = (before & (first[:, None] < latest)) | torch.eye(count, dtype=torch.bool, device=ends.device)

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (query < ends[key])

    return BlockMask.from_kv_blocks(
        *_listed(some & ~whole), *_listed(whole), BLOCK_SIZE=_BLOCK, mask_mod=sees, seq_lengths=(len(ends), len(ends))
    )


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row of `chosen` [Q, K] holds, int [1, 1, Q], and their numbers, those first, int [1, 1, Q, K]."""
    numbers = chosen.int().argsort(dim=1, descending=True, stable=True)
    return chosen.sum(1, dtype=torch.int32)[None, None], numbers.int()[None, None]


def _dtype(model: Any) -> torch.dtype:
    """The one that the model computes in; its first floating-point parameter is an embedding or a norm."""
    return next(parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
