"""Decide whether rows of a model may share one sequence, and how long they may be; engine and trainer both ask here."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AutoConfig

from clawpipe.model.policy.forward import hidden_states, with_attention

Layout = Literal["packed", "apart"]

_PROBE = "clawpipe_probe"
_KINDS = {"full_attention", "sliding_attention", "attention"}  # layer types whose mask can be replaced
_LENGTHS = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")  # names of the context length, by family
_UNLIMITED = 32768  # tokens; for models with recurrent layers only, which have no limit

_log = logging.getLogger(__name__)


def layout_of(model: Any) -> Layout:
    """Return whether rows of `model` share a sequence with common prefixes ("packed"), or are computed one by one ("apart").

    Each night measures whether the log-probs are right in either layout, see `clawpipe.learn.evaluation.model_check`.
    """
    obstacle = obstacle_to_packing(model)
    if obstacle:
        _log.warning("%s has %s: its rows are computed one by one", type(model).__name__, obstacle)
    return "apart" if obstacle else "packed"


def obstacle_to_packing(model: Any) -> str:
    """Return why rows of `model` cannot share a sequence, from its attributes and from a run on one token; "" if they can."""
    config = model.config.get_text_config()
    if model._is_stateful:
        return "layers with a recurrent state"
    if not model._supports_attention_backend:
        return "attention that cannot be replaced"
    if others := sorted(set(getattr(config, "layer_types", None) or ()) - _KINDS):
        return f"layers of {others[0]}"
    reached = _layers_reached(model) == list(range(config.num_hidden_layers))
    return "" if reached else "layers that do not receive the mask"


@torch.no_grad()
def _layers_reached(model: Any) -> list[int]:
    """Return the numbers of the layers whose attention can be replaced and receives the forward's extra arguments."""
    reached: list[int] = []
    with with_attention(model, _PROBE):
        hidden_states(model, torch.zeros(1, 1, dtype=torch.long, device=model.device), reached=reached)
    return sorted(reached)


def _note_layer(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention of one token to itself; appends its layer's number to the list `reached`, if that argument arrives."""
    kwargs.get("reached", []).append(getattr(module, "layer_idx", None))
    return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1).transpose(1, 2), None


AttentionInterface.register(_PROBE, _note_layer)


def context_of(model: Any) -> int:
    """Return the longest token history that the model can hold with the same positions for each of its prefixes."""
    return min(_named_length(model) or _UNLIMITED, steady_length(model))


def context_at(base: Path) -> int:
    """Return the same of the model whose config is in a directory, without loading it."""
    return context_of(_described_at(base))


def longest_at(base: Path) -> int:
    """Return the most tokens of a row that the model in a directory can compute. Without rotary angles, which are computed for any
    place, it has a table of its places."""
    model = _described_at(base)
    has_angles = bool(getattr(model.config.get_text_config(), "rope_parameters", None))
    return steady_length(model) if has_angles else _named_length(model) or sys.maxsize


def _described_at(base: Path) -> Any:
    return SimpleNamespace(config=AutoConfig.from_pretrained(base, trust_remote_code=False))


def _named_length(model: Any) -> int | None:
    """Return the context length that a model's config names; None if it names none."""
    config = model.config.get_text_config()
    return next((limit for name in _LENGTHS if (limit := getattr(config, name, None))), None)


def steady_length(model: Any) -> int:
    """Return the length up to which rotary angles do not depend on the row's length; unlimited for most models."""
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    limits = {"dynamic": "max_position_embeddings", "longrope": "original_max_position_embeddings"}
    parts = [part for part in (rope, *rope.values()) if isinstance(part, dict) and part.get("rope_type") in limits]
    found = [part.get(limits[part["rope_type"]]) or getattr(config, limits[part["rope_type"]], None) for part in parts]
    return min((limit for limit in found if limit), default=sys.maxsize)
