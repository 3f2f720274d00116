"""A causal model's own forward in two halves, tokens to last hidden states and those to logits, and with another attention.

Whatever a family does to its logits (a scale, a soft cap, a bias) its own forward does: it is called with its decoder's answer
already given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import MoeModelOutputWithPast


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
    with _answering(_body(model), hidden[None]), _answering(decoder_of(model), hidden[None]):  # families ask the one or the other
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
def attending_by(model: Any, name: str) -> Iterator[Any]:
    """`model` with the attention that is registered as `name`."""
    present = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield model
    finally:
        model.set_attn_implementation(present)


@contextmanager
def as_loaded(model: Any) -> Iterator[Any]:
    """`model` with the attention that transformers chose for it, in evaluation mode, and without gradients."""
    training = model.training
    with attending_by(model, getattr(model, "loaded_attention", model.config._attn_implementation)), torch.inference_mode():
        yield model.eval()
    model.train(training)
