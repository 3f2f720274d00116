"""Compare the trainer's log-probs with the model's, for rows with common prefixes and for a single row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from clawpipe.core.config.training import Train
from clawpipe.learn.training.backends import open_backend
from clawpipe.learn.training.check_request import TrainerCheckRequest
from clawpipe.learn.training.data.packing import build_pack
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.model.build import build_model
from clawpipe.learn.training.model.scoring_head import base_of, install_scoring_head, score_pack
from clawpipe.learn.training.model.tree_attention import packs, use_packs
from clawpipe.model.policy.agreement import Agreement, agreement
from clawpipe.model.policy.load import load_policy, resolve_device
from clawpipe.model.policy.probe import Probe, forward_logprobs, probe_for, runs


def check_trainer(request: TrainerCheckRequest) -> Agreement:
    """Load the policy as training or annotation does, and compare its log-probs.

    Raises:
        DataError: the trainer cannot run the model.
    """
    if request.train and not request.train.backend.is_local:
        return _compare_backend(request, open_backend(request.train.backend), request.train)
    with runs("trainer", request.policy.base):
        model: Any = build_model(request.training(request.train)) if request.train else _load_for_annotation(request)
        return compare_trainer(model, probe_for(base_of(model), Path(request.policy.base)))


def _compare_backend(request: TrainerCheckRequest, backend: Any, train: Train) -> Agreement:
    """Compare the log-probs of a service with those of the model here, or of what the night's engine has sampled."""
    if request.policy.elsewhere:
        return _compare_sampled(request, backend, train)
    model = _load_for_annotation(request)
    rows = _rows(probe_for(base_of(model), Path(request.policy.base)))
    found = backend.logprobs(request.training(train), rows)
    expected = forward_logprobs(base_of(model), rows)
    return agreement("trainer", "apart", [one for row in found for one in row], [one for row in expected for one in row])


def _compare_sampled(request: TrainerCheckRequest, backend: Any, train: Train) -> Agreement:
    """Compare the service's log-probs of sampled tokens with those that were recorded."""
    scored = backend.logprobs(request.training(train), [list(row.ids) for row in request.sampled])
    found = [scores[place - 1] for scores, row in zip(scored, request.sampled, strict=True) for place in row.logprobs]
    expected = [logprob for row in request.sampled for logprob in row.logprobs.values()]
    return agreement("trainer", "apart", found, expected)


def _rows(probe: Probe) -> list[list[int]]:
    return [prompt + reply for prompt, reply in zip(probe.prompts, probe.replies, strict=True)]


def _load_for_annotation(request: TrainerCheckRequest) -> Any:
    """Load the policy as annotation loads it."""
    policy, device = request.policy, resolve_device(request.device.partition(":")[0])
    adapter = Path(policy.adapter) if policy.adapter else None
    model = load_policy(Path(policy.base), adapter, policy.dtype, device, policy.quantization)
    use_packs(model, device)
    return model


def compare_trainer(model: Any, probe: Probe) -> Agreement:
    """Score the probe's conversations as training does, in one pack and one alone, and compare with plain forward passes.

    Args:
        model: as training builds it. It gets a scoring head, and stays in training mode with dropout off.
    """
    install_scoring_head(model)
    base = base_of(model)
    rows = _rows(probe)
    expected = forward_logprobs(base, rows)
    samples = [Sample("", np.asarray(row), np.arange(1, len(row)), 1.0, 1.0, {}) for row in rows]
    _train_without_dropout(model)
    found = _logprobs(model, samples) + _logprobs(model, samples[:1])
    layout = "packed" if packs(base) else "apart"
    return agreement("trainer", layout, found, [logprob for row in (*expected, expected[0]) for logprob in row])


def _train_without_dropout(model: nn.Module) -> None:
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):  # in an adapter
            module.eval()


@torch.no_grad()
def _logprobs(model: Any, samples: list[Sample]) -> list[float]:
    pack = {name: stream.to(model.device) for name, stream in build_pack(samples).items()}
    return score_pack(model, pack).logprobs[pack["score"]].tolist()
