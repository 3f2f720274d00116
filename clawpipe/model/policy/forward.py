"""A causal model's forward in two halves, tokens to last hidden states and hidden states to logits; and other attention.

The model's own forward computes the logits, including a family's scale, soft cap or bias: it is called with its decoder
replaced by one that returns the given hidden states.
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
    """Return the last hidden states [1, T, d] of tokens [1, T]."""
    return decoder_of(model)(input_ids, use_cache=False, **options).last_hidden_state


def decoder_of(model: Any) -> Any:
    """Return the module that turns text tokens into hidden states, without modules for other inputs."""
    decoder = model.get_decoder()
    return _body(model) if decoder is model else decoder


def _body(model: Any) -> Any:
    """Return the module that the model's forward calls for hidden states."""
    body = model.base_model
    return body if body is not model else next(child for child in model.children() if isinstance(child, PreTrainedModel))


def logits_of(model: Any, hidden: Tensor) -> Tensor:
    """Return the model's logits [N, V] of last hidden states [N, d]."""
    tokens = torch.zeros(1, len(hidden), dtype=torch.long, device=hidden.device)
    with _answering(_body(model), hidden[None]), _answering(decoder_of(model), hidden[None]):  # families call one or the other
        return model.forward(input_ids=tokens, use_cache=False, return_dict=True).logits[0]


class _Answer(MoeModelOutputWithPast):
    """A decoder output with last hidden states, and None for every other attribute that a family's forward reads."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


@contextmanager
def _answering(decoder: nn.Module, hidden: Tensor) -> Iterator[None]:
    """Make `decoder` return `hidden` for any input; in place, since hooks and wrappers keep a reference to the module."""
    replaced = vars(decoder).get("forward")  # of the instance: a hook of accelerate, or None
    decoder.forward = lambda *_, **__: _Answer(last_hidden_state=hidden)  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        del decoder.forward
        if replaced is not None:
            decoder.forward = replaced


def replace_attention(model: Any, name: str) -> None:
    """Make `model` use the attention function registered as `name`; `as_loaded` restores the loaded one for a block."""
    model.loaded_attention = model.config._attn_implementation
    model.set_attn_implementation(name)


@contextmanager
def with_attention(model: Any, name: str) -> Iterator[Any]:
    """Use the attention function registered as `name` in this block."""
    present = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield model
    finally:
        model.set_attn_implementation(present)


@contextmanager
def as_loaded(model: Any) -> Iterator[Any]:
    """Use the attention that transformers chose for `model`, evaluation mode and no gradients in this block."""
    training = model.training
    with with_attention(model, getattr(model, "loaded_attention", model.config._attn_implementation)), torch.inference_mode():
        yield model.eval()
    model.train(training)
