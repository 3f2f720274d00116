"""The policy of the night's start, beside the one that a later round trains: the reference of dpo and kto."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file

from clawpipe.learn.training.model.tree_attention import use_packs
from clawpipe.learn.training.request import Reference, TrainRequest
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.merged import merge_adapter

_WEIGHTS = "adapter_model.safetensors"


@contextmanager
def reference_model(model: Any, request: TrainRequest) -> Iterator[Any]:
    """Yield a model that says what the reference of `request` says. An adapter's model plays its part for the block."""
    if request.reference is None:
        yield model
    elif request.config.adapter == "full":
        yield load_reference(request.reference, request, next(model.parameters()).device)
    else:
        with _as_reference(model, request.reference):
            yield model


def load_reference(reference: Reference, request: TrainRequest, device: torch.device) -> Any:
    """Load the reference as a whole model, beside the one that is trained."""
    model = load_base(Path(reference.base), request.dtype, device)
    use_packs(model, device)
    return (merge_adapter(model, reference.adapter) if reference.adapter else model).requires_grad_(False)


def set_adapter_weights(model: PeftModel, adapter: str, name: str) -> None:
    """Give the adapter `name` of the model the weights in a directory."""
    set_peft_model_state_dict(model, load_file(Path(adapter) / _WEIGHTS), adapter_name=name)


@contextmanager
def _as_reference(model: PeftModel, reference: Reference) -> Iterator[None]:
    if reference.adapter is None:
        with model.disable_adapter():
            yield
        return
    held = get_peft_model_state_dict(model, save_embedding_layers=False)
    trained = {name: weight.detach().clone() for name, weight in held.items()}
    set_adapter_weights(model, reference.adapter, "default")
    try:
        yield
    finally:
        set_peft_model_state_dict(model, trained, adapter_name="default")
