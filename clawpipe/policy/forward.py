"""A causal model's own forward in two halves, tokens to last hidden states and those to logits; and what may be changed about it.

Whatever a family does to its logits (a scale, a soft cap, a bias) its own forward does: it is called with its decoder's answer
already given. The engine and the trainer both ask here whether rows may share one sequence.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import MoeModelOutputWithPast

Layout = Literal["packed", "apart"]

_KINDS = {"full_attention", "sliding_attention", "attention"}  # of layers whose mask we can give
_LENGTHS = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")  # names of the context, by family
_UNLIMITED = 32768  # tokens; for models of recurrent layers alone, which name no limit

_log = logging.getLogger(__name__)


def layout_of(model: Any) -> Layout:
    """Whether rows of `model` may share one sequence, beginnings and all ("packed"), or are computed one by one ("apart").

    Packed takes attention that can be replaced, in every layer. That it is enough is measured before each night, see
    `clawpipe.policy.agreement`.
    """
    obstacle = obstacle_to_packing(model)
    if obstacle:
        _log.info("%s: rows apart, for the model has %s", type(model).__name__, obstacle)
    return "apart" if obstacle else "packed"


def obstacle_to_packing(model: Any) -> str:
    """What of `model` keeps its rows apart; "" if nothing does."""
    if model._is_stateful:
        return "layers that hand a state from token to token"
    if not model._supports_attention_backend:
        return "attention that cannot be replaced"
    others = sorted(set(getattr(model.config.get_text_config(), "layer_types", None) or ()) - _KINDS)
    return f"layers of {others[0]}" if others else ""


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


def hidden_states(model: Any, input_ids: Tensor, **options: Any) -> Tensor:
    """Last hidden states [1, T, d] of tokens [1, T]."""
    return decoder_of(model)(input_ids, use_cache=False, **options).last_hidden_state


def decoder_of(model: Any) -> Any:
    """What makes hidden states of tokens, without the modules that a model may have for other than text."""
    decoder = model.get_decoder()
    return _body(model) if decoder is model else decoder


def _body(model: Any) -> Any:
    """What the model's forward asks for hidden states."""
    body = model.base_model
    return body if body is not model else next(child for child in model.children() if isinstance(child, PreTrainedModel))


def logits_of(model: Any, hidden: Tensor) -> Tensor:
    """The model's own logits [N, V] of last hidden states [N, d]."""
    tokens = torch.zeros(1, len(hidden), dtype=torch.long, device=hidden.device)
    with _answering(_body(model), hidden[None]):
        return model.forward(input_ids=tokens, use_cache=False, return_dict=True).logits[0]


class _Answer(MoeModelOutputWithPast):
    """Last hidden states, and None for whatever else a family's forward looks for in its decoder's answer."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


@contextmanager
def _answering(decoder: nn.Module, hidden: Tensor) -> Iterator[None]:
    """Have `decoder` answer with `hidden` whatever it is asked; in place, since hooks and wrappers hold on to the module."""
    own = vars(decoder).get("forward")  # of the instance: a hook of accelerate, or nothing
    decoder.forward = lambda *_, **__: _Answer(last_hidden_state=hidden)  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        del decoder.forward
        if own is not None:
            decoder.forward = own


def replace_attention(model: Any, name: str) -> None:
    """Have `model` attend by the function registered as `name`; `as_loaded` takes that back for a while."""
    model.loaded_attention = model.config._attn_implementation
    model.set_attn_implementation(name)


@contextmanager
def as_loaded(model: Any) -> Iterator[Any]:
    """`model` with the attention that transformers chose for it, in evaluation mode, and without gradients."""
    present, training = model.config._attn_implementation, model.training
    model.set_attn_implementation(getattr(model, "loaded_attention", present))
    try:
        with torch.inference_mode():
            yield model.eval()
    finally:
        model.set_attn_implementation(present)
        model.train(training)
