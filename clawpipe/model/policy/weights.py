"""Write the weights of a whole model: a base model that loads alone, whose bytes depend on the weights alone."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from clawpipe.errors import TrainingError
from clawpipe.model.policy.base import copy_companions


def written_tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights that a base model's files hold: each tied weight once, and no value head."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}  # name of a tied weight -> name of the weight that is written
    return {name: tensor for name, tensor in model.state_dict().items() if name not in tied and not name.startswith("value_head.")}


def finite(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return `tensors` after checking that they hold no NaN and no infinity.

    Raises:
        TrainingError: a tensor is not finite; the error names the first.
    """
    counts = {name: int((~torch.isfinite(tensor)).sum()) for name, tensor in tensors.items()}
    bad = {name: count for name, count in counts.items() if count}
    if bad:
        of = sum(tensor.numel() for tensor in tensors.values())
        raise TrainingError(
            f"{sum(bad.values())} of {of} trained weights are not finite", next(iter(bad)), "lower train.learning_rate"
        )
    return tensors


def save_model(model: PreTrainedModel, tensors: dict[str, Tensor], directory: Path, base: Path) -> None:
    """Write a model's weights as safetensors, its config, and the other files of `base`.

    Args:
        tensors: the model's `written_tensors`, each whole.

    Raises:
        TrainingError: a weight is not finite; nothing is written.
    """
    model.save_pretrained(directory, state_dict=finite(tensors))
    copy_companions(base, directory)
