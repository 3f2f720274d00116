"""The outcome of a training: a directory that appears once it is complete. Imports no heavy library.

It holds `adapter` (or `model`), `metrics.jsonl` with a line for each optimizer step, `summary.json`, and `optimizer`, from which
the night's next round goes on, if another may follow.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.digests import sha256_file
from clawpipe.core.store.files import fsync
from clawpipe.core.system import faults
from clawpipe.learn.training.request import METRICS, OPTIMIZER, STATE, SUMMARY, TrainRequest

Steps = Sequence[dict[str, float]]
_LEAST = 2.0**-23  # smallest relative change that is not rounding: the epsilon of float32


def commit_outcome(
    request: TrainRequest,
    steps: Steps,
    summary: JsonObject,
    write_weights: Callable[[Path], object],
    write_optimizer: Callable[[Path], object] = lambda directory: None,
) -> None:
    """Write the outcome to a temporary directory, sync it, and rename it into place.

    Args:
        steps: metrics of each optimizer step: clawpipe.learn.training.metrics says what they are called.
        summary: `samples`, the rows that were trained on; `filtered`, counts of others by reason; `moved`, the relative norm of the
            weights' change, where it is known; `stopped`, why training ended early, or None; `remote`, where a service keeps the
            policies for sampling, by the names of their directories, if it does.
        write_weights: fills the directory of the adapter, or of the whole weights.
        write_optimizer: adds to the state that the night's next round is given, as far as another may follow; the number of steps
            so far is there already.
    """
    output = Path(request.output)
    staging = output.with_name(f".{output.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    weights = staging / request.weights.name
    write_weights(weights)
    if request.snapshots.exists():
        shutil.copytree(request.snapshots, staging / request.snapshots.name)
    if request.is_gone_on_from:
        _write_state(staging / OPTIMIZER, request.steps_before + len(steps))
        write_optimizer(staging / OPTIMIZER)
    summary = summary | _told_by(steps, summary.get("moved"))
    summary |= {"files": _digests(weights), "optimizer": _digests(staging / OPTIMIZER), "identity": request.identity()}
    (staging / METRICS).write_text("".join(json.dumps(step, sort_keys=True) + "\n" for step in steps))
    (staging / SUMMARY).write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
    for path in [*staging.rglob("*"), staging]:
        fsync(path)
    faults.kill_point("train.before_rename")
    shutil.rmtree(output, ignore_errors=True)
    os.replace(staging, output)
    fsync(output.parent)


def nothing_learnt(grad_norms: Sequence[float], moved: float | None) -> str | None:
    """Return why a run with these gradient norms and this relative change of the weights learnt nothing; None if it learnt, or
    nobody knows."""
    if grad_norms and not any(grad_norms):
        return f"the gradient was 0 in all of {len(grad_norms)} optimizer steps: nothing was learnt"
    if moved is not None and moved < _LEAST:
        return f"the weights moved by {moved:.1g} of their norm in {len(grad_norms)} optimizer steps: nothing was learnt"
    return None


def _write_state(directory: Path, steps: int) -> None:
    directory.mkdir(parents=True)
    (directory / STATE).write_text(json.dumps({"steps": steps}) + "\n")


def _told_by(steps: Steps, moved: float | None) -> JsonObject:
    """Return the fields of the summary that the steps' metrics tell."""
    norms = [step["grad_norm"] for step in steps if "grad_norm" in step]
    told: JsonObject = {"steps": len(steps), "last": steps[-1], "nonfinite": sum(step.get("nonfinite", 0) for step in steps)}
    told |= {"grad_norm_max": max(norms)} if norms else {}
    return told | {"nothing_learnt": nothing_learnt(norms, moved)}


def _digests(directory: Path) -> dict[str, str]:
    return {file.name: sha256_file(file) for file in sorted(directory.glob("*"))}
