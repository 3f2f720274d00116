"""Add an adapter to the weights of its base."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel


def merge_adapter(core: PreTrainedModel, adapter: Path | str) -> PreTrainedModel:
    """Return `core` with an adapter added to its weights, in place.

    Where head and input embedding share a weight and the adapter is on one of them, they share it no longer: the adapter changes
    the one and not the other.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)  # peft 0.21 with transformers 5.23
        warnings.filterwarnings("ignore", "Model has `tie_word_embeddings=True`", UserWarning)  # which is what `_untie` is for
        grown: Any = PeftModel.from_pretrained(core, str(adapter), is_trainable=False, use_safetensors=True)
        _untie(core)
        return grown.merge_and_unload()


def _untie(model: PreTrainedModel) -> None:
    """Give each tied weight a copy of its own if an adapter is on it or on what it is tied to."""
    tied = dict(getattr(model, "all_tied_weights_keys", None) or {})
    owners = {name: _owner(model, name) for pair in tied.items() for name in pair}
    if not any(isinstance(owner, BaseTunerLayer) for owner in owners.values()):
        return
    for name in tied:
        owner = owners[name]
        plain: Any = owner.get_base_layer() if isinstance(owner, BaseTunerLayer) else owner
        plain.weight = nn.Parameter(plain.weight.detach().clone(), requires_grad=False)
    model.all_tied_weights_keys = {}
    for config in {id(part): part for part in (model.config, model.config.get_text_config())}.values():
        config.tie_word_embeddings = False


def _owner(model: PreTrainedModel, name: str) -> nn.Module:
    """Return the module that holds a weight of the model without an adapter."""
    return model.get_submodule(name.removesuffix(".weight"))
