"""Whether the trainer's log-probs are the model's own, for rows that share their beginnings and for a row by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from clawpipe.policy.agreement import Agreement, Probe, agreement, own_logprobs
from clawpipe.policy.forward import Layout
from clawpipe.training.head import base_of, install_scoring_head, score_pack
from clawpipe.training.packing import build_pack
from clawpipe.training.samples import Sample


def compare_trainer(model: Any, probe: Probe) -> Agreement:
    """Score the probe's conversations as an update does, in one pack and by themselves, and compare with plain forward passes.

    Args:
        model: as training gets it; a scoring head is put on it, and it is left in training mode, with dropout off.
    """
    install_scoring_head(model)
    rows = [prompt + reply for prompt, reply in zip(probe.prompts, probe.replies, strict=True)]
    samples = [_sample(row) for row in rows]
    expected = [logprob for row in own_logprobs(base_of(model), rows) for logprob in row]
    _train_mode(model)
    found = _scores(model, samples) + [logprob for sample in samples for logprob in _scores(model, [sample])]
    layout: Layout = "packed"
    return agreement("trainer", layout, found, expected + expected)


def _sample(row: list[int]) -> Sample:
    return Sample("probe", np.asarray(row), np.arange(1, len(row)), 1.0, 1.0, {})


def _train_mode(model: nn.Module) -> None:
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.eval()


@torch.no_grad()
def _scores(model: Any, samples: list[Sample]) -> list[float]:
    pack = {name: stream.to(model.device) for name, stream in build_pack(samples).items()}
    return score_pack(model, pack).logprobs[pack["score"]].tolist()
