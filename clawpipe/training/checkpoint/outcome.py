"""The outcome directory of a run: weights, metrics and a summary, revealed at once."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from clawpipe import faults
from clawpipe.store.digests import sha256_file
from clawpipe.store.files import fsync
from clawpipe.training.checkpoint.state import trainable
from clawpipe.training.model.adapter import adapter_tensors, model_tensors, save_adapter, save_model
from clawpipe.training.model.value_head import save_value_head, value_head_tensors
from clawpipe.training.process.collectives import gathered, whole
from clawpipe.training.process.ranks import world
from clawpipe.training.request import METRICS, SUMMARY, TrainRequest

_ELEMENTS = 1 << 16  # of a tensor; of a larger one evenly spread elements stand for all, and a copy of it stays small
_LEAST = torch.finfo(torch.float32).eps  # of the weights' norm: less is what rounding does


class _Part(NamedTuple):
    """Of a weight, every `each`-th of its elements."""

    elements: Tensor
    each: int


class Movement:
    """Holds trained weights as they are now, to compare them with later. All processes take part in both."""

    def __init__(self, model: nn.Module) -> None:
        self._before = _sampled(model)

    def relative(self, model: nn.Module) -> float:
        """Norm of the change of the trained weights over their norm before: what is written in the end, so in their own dtype.

        Of a large tensor 65,536 elements are compared.
        """
        pairs = list(zip(_sampled(model), self._before, strict=True))
        moved = sum(now.each * float((now.elements.double() - before.elements.double()).square().sum()) for now, before in pairs)
        norm = sum(before.each * float(before.elements.double().square().sum()) for _, before in pairs)
        return math.sqrt(moved / norm) if norm else math.sqrt(moved)


def nothing_learnt(grad_norms: Sequence[float], moved: float) -> str | None:
    """Why a run with gradients of these norms, whose weights changed by `moved` of their norm, learnt nothing; None: it did."""
    if grad_norms and not any(grad_norms):
        return f"the gradient was 0 in all of {len(grad_norms)} updates: nothing was learnt"
    if moved < _LEAST:
        return f"the weights moved by {moved:.1g} of their norm in {len(grad_norms)} updates: nothing was learnt"
    return None


def _sampled(model: nn.Module) -> list[_Part]:
    with gathered(model), torch.no_grad():
        return [_spread(whole(weight)) for _, weight in trainable(model)]


def _spread(weight: Tensor) -> _Part:
    each = max(1, math.ceil(weight.numel() / _ELEMENTS))
    return _Part(weight.detach().flatten()[::each].cpu().clone(), each)


def reveal(request: TrainRequest, model: Any, steps: list[dict[str, float]], facts: dict[str, Any]) -> None:
    """Write the outcome beside its place, sync it, and rename it there.

    Args:
        request: says where, and whether an adapter or a whole model was trained.
        model: the trained policy.
        steps: metrics of the updates.
        facts: what else the summary says; `moved` is the relative norm of the weights' change.

    Raises:
        TrainingError: a weight is not finite; nothing is revealed.
    """
    if not world().is_main:
        _take_part(request, model)
        return
    output = Path(request.output)
    staging = output.with_name(f".{output.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    weights = staging / request.weights.name
    if request.config.adapter == "full":
        save_model(model, weights, Path(request.base))
    else:
        save_adapter(model, weights, request.base_digest)
    save_value_head(model, weights)
    files = {file.name: sha256_file(file) for file in sorted(weights.iterdir())}
    facts |= {"identity": request.identity(), "files": files, "steps": len(steps), "last": steps[-1]}
    facts["nonfinite"] = sum(step["nonfinite"] for step in steps)
    norms = [step["grad_norm"] for step in steps if "grad_norm" in step]
    facts |= {"grad_norm_max": max(norms)} if norms else {}
    facts["nothing_learnt"] = nothing_learnt(norms, facts["moved"])
    (staging / METRICS).write_text("".join(json.dumps(step, sort_keys=True) + "\n" for step in steps))
    (staging / SUMMARY).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")
    for path in [*staging.rglob("*"), staging]:
        fsync(path)
    faults.point("train.before_rename")
    shutil.rmtree(output, ignore_errors=True)
    os.replace(staging, output)
    fsync(output.parent)


def _take_part(request: TrainRequest, model: Any) -> None:
    """Hand over this process's part of what the main one writes, in the same order."""
    (model_tensors if request.config.adapter == "full" else adapter_tensors)(model)
    value_head_tensors(model)
