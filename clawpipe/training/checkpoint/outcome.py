"""The outcome directory of a run: weights, metrics and a summary, revealed at once."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from clawpipe import faults
from clawpipe.store.artifacts import fsync
from clawpipe.store.digests import sha256_file
from clawpipe.training.checkpoint.movement import nothing_learnt
from clawpipe.training.model.adapter import adapter_tensors, model_tensors, save_adapter, save_model
from clawpipe.training.model.value_head import save_value_head, value_head_tensors
from clawpipe.training.process.ranks import world
from clawpipe.training.request import METRICS, SUMMARY, TrainRequest


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
