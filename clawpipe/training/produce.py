"""A step's view of training: samples and a policy in, the next policy out, as an artefact."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawpipe.config.night import Runtime
from clawpipe.config.training import Train
from clawpipe.policy.spec import policy_spec
from clawpipe.policy.version import adapter_ref
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files
from clawpipe.store.digests import sha256_json
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.training.launch import run_training
from clawpipe.training.request import ADAPTER, METRICS, SUMMARY, TrainRequest


def train_policy(
    store: Store,
    work: Path,
    samples: DatasetRef,
    start: ModelRef,
    config: Train,
    *,
    temperature: float,
    seed: int,
    runtime: Runtime,
    on_progress: Callable[[dict[str, Any]], None],
) -> StepResult:
    """Train on the samples from `start`; the adapter as an artefact, the metrics of its updates as details.

    A try that was killed is taken up at its last checkpoint, which lies below `work` under the digest of the inputs.

    Raises:
        DataError, TrainingError, BusyError: see `clawpipe.training.launch.run_training`.
    """
    spec = policy_spec(store, start)
    run = work / "train" / sha256_json([samples, start, config, temperature, seed])[:24]
    request = TrainRequest(
        samples=tuple(map(str, dataset_files(store, samples))),
        base=spec.base,
        base_digest=start.base,
        dtype=spec.dtype,
        init_adapter=spec.adapter,
        config=config,
        temperature=temperature,
        seed=seed,
        device=runtime.device,
        threads=runtime.train_threads,
        output=str(run / "outcome"),
    )
    outcome = run_training(request, run, runtime.step_timeout, on_progress)
    summary = json.loads((outcome / SUMMARY).read_bytes())
    updates = [json.loads(line) for line in (outcome / METRICS).read_text().splitlines()]
    parents = tuple(sorted({samples.digest, start.digest}))
    facts = {"kind": "model", "name": "adapter", "base": start.base, "calls": start.calls, "dtype": start.dtype}
    adapter, _ = store.publish("adapter", lambda directory: _fill(directory, outcome / ADAPTER, facts))
    shutil.rmtree(run)
    set_aside = summary["set_aside"]
    return StepResult(
        output=adapter_ref(start, adapter, parents),
        rows_in=samples.rows,
        rows_out=summary["samples"],
        set_aside=set_aside,
        details={"steps": summary["steps"], "nonfinite": summary["nonfinite"], "updates": updates},
    )


def _fill(directory: Path, source: Path, facts: dict[str, Any]) -> dict[str, Any]:
    shutil.copytree(source, directory, dirs_exist_ok=True)
    return facts
