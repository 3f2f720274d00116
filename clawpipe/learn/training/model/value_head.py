"""The critic of ppo: a linear layer on the hidden state that predicts a token, trained together with the policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from clawpipe.learn.training.data.packing import Pack, build_pack
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.model.scoring_head import base_of, install_scoring_head, score_pack
from clawpipe.learn.training.process.collectives import gather_on_main
from clawpipe.model.policy.weights import finite

VALUE_HEAD = "value_head.safetensors"  # beside the weights of the policy


def add_value_head(model: Any, start: Path | None = None) -> None:
    """Give `model` a value head: the one stored in the directory `start`, else one that predicts 0 everywhere.

    It is a module of the base model, so that optimizer, checkpoints and distributed wrappers include it.
    """
    base = base_of(model)
    like = base.get_output_embeddings().weight
    dtype = torch.promote_types(like.dtype if like.is_floating_point() else torch.float32, torch.float32)
    head = nn.Linear(base.config.get_text_config().hidden_size, 1, device=like.device, dtype=dtype)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
    if start is not None and (start / VALUE_HEAD).exists():
        head.load_state_dict(load_file(start / VALUE_HEAD))
    base.value_head = head


def save_value_head(model: Any, directory: Path) -> None:
    """Write the value head if `model` has one.

    Raises:
        TrainingError: a weight is not finite; nothing is written.
    """
    if tensors := finite(value_head_tensors(model)):
        save_file(tensors, directory / VALUE_HEAD)


def value_head_tensors(model: Any) -> dict[str, Tensor]:
    """Return the value head's weights in the main process, empty without a head; every process has to call it."""
    head = getattr(base_of(model), "value_head", None)
    return {} if head is None else gather_on_main(head.state_dict())


@torch.no_grad()
def predict_values(model: Any, samples: Sequence[Sample], packs: Sequence[Pack], share: bool = True) -> list[np.ndarray]:
    """Return the values of each sample's trained tokens under the current weights: float32 [N] per sample, in the unit of rewards.

    The value of a token is the head's output on the hidden state that predicts it.

    Args:
        model: with a value head, see `add_value_head`; it is put into evaluation mode.
        samples: rows with N trained tokens each.
        packs: indices of samples by pack; each sample is in exactly one.
        share: whether rows of a pack share common prefixes.
    """
    head = base_of(model).value_head
    values = [np.zeros(len(sample.trained), np.float32) for sample in samples]
    if not any(parameter.any() for parameter in head.parameters()):
        return values  # a new head predicts 0 everywhere
    install_scoring_head(model)
    model.eval()
    for pack in packs:
        batch = build_pack([samples[index] for index in pack], share)
        batch = {name: tensor.to(head.weight.device) for name, tensor in batch.items()}
        predicted = score_pack(model, batch).values
        assert predicted is not None
        for index, part in zip(pack, _split(predicted[batch["score"]], batch["rows"]), strict=True):
            values[index] = part
    return values


def _split(values: Tensor, rows: Tensor) -> list[np.ndarray]:
    return [part.float().cpu().numpy() for part in values.split(rows.bincount().tolist())]
