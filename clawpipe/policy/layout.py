"""Whether rows of a model may share one sequence, and how long they may be: asked by the engine and by the trainer alike."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from clawpipe.policy.forward import attending_by, hidden_states

Layout = Literal["packed", "apart"]

_PROBE = "clawpipe_probe"
_KINDS = {"full_attention", "sliding_attention", "attention"}  # of layers whose mask we can give
_LENGTHS = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")  # names of the context, by family
_UNLIMITED = 32768  # tokens; for models of recurrent layers alone, which name no limit

_log = logging.getLogger(__name__)


def layout_of(model: Any) -> Layout:
    """Whether rows of `model` share a sequence, beginnings and all ("packed"), or are computed one by one ("apart").

    That the log-probs are right either way is measured before each night, see `clawpipe.evaluation.model_check`.
    """
    obstacle = obstacle_to_packing(model)
    if obstacle:
        _log.warning("%s has %s: its rows are computed one by one", type(model).__name__, obstacle)
    return "apart" if obstacle else "packed"


def obstacle_to_packing(model: Any) -> str:
    """What of `model` keeps its rows apart, as it says itself and as one token shows; "" if nothing does."""
    config = model.config.get_text_config()
    if model._is_stateful:
        return "layers that hand a state from token to token"
    if not model._supports_attention_backend:
        return "attention that cannot be replaced"
    if others := sorted(set(getattr(config, "layer_types", None) or ()) - _KINDS):
        return f"layers of {others[0]}"
    heard = _hearing(model) == list(range(config.num_hidden_layers))
    return "" if heard else "layers that do not hear which tokens they are to see"


@torch.no_grad()
def _hearing(model: Any) -> list[int]:
    """Numbers of the layers whose attention can be replaced and hears what is sent along with the tokens."""
    heard: list[int] = []
    with attending_by(model, _PROBE):
        hidden_states(model, torch.zeros(1, 1, dtype=torch.long, device=model.device), heard=heard)
    return sorted(heard)


def _hear(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention of one token, which sees itself alone; notes its layer in the list `heard`, if that has come along."""
    kwargs.get("heard", []).append(getattr(module, "layer_idx", None))
    return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1).transpose(1, 2), None


AttentionInterface.register(_PROBE, _hear)


def context_of(model: Any) -> int:
    """Longest token history that the model can hold, with the same positions for each of its beginnings."""
    config = model.config.get_text_config()
    named = [limit for name in _LENGTHS if (limit := getattr(config, name, None))]
    return min(named[0] if named else _UNLIMITED, steady_length(model))


def steady_length(model: Any) -> int:
    """Tokens up to which a position's angle does not depend on the length of the row, for models where beyond it does."""
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    limits = {"dynamic": "max_position_embeddings", "longrope": "original_max_position_embeddings"}
    parts = [part for part in (rope, *rope.values()) if isinstance(part, dict) and part.get("rope_type") in limits]
    found = [part.get(limits[part["rope_type"]]) or getattr(config, limits[part["rope_type"]], None) for part in parts]
    return min((limit for limit in found if limit), default=sys.maxsize)
