"""Train a policy as a step: samples and a policy in, the next policy out, as an artifact."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.environment import Played
from clawpipe.core.config.load import shipped
from clawpipe.core.config.runtime import Runtime
from clawpipe.core.config.training import Train
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.refs import DatasetRef, ModelRef, OptimizerRef, Ref, StepResult
from clawpipe.core.system.devices import meter
from clawpipe.errors import ClawpipeError, ConfigError, TrainingError
from clawpipe.learn.children.memory import MemoryShortError, kernel_kills
from clawpipe.learn.children.ranks import clear_error, read_error
from clawpipe.learn.children.run import KilledError, run_child
from clawpipe.learn.training.backends import require_request
from clawpipe.learn.training.course import Course
from clawpipe.learn.training.methods import require_token_scores, require_trainable
from clawpipe.learn.training.request import METRICS, OPTIMIZER, SNAPSHOTS, SUMMARY, Reference, Rendering, TrainRequest, is_finished
from clawpipe.learn.training.signs import signs_of
from clawpipe.model.policy.spec import PolicySpec, policy_spec
from clawpipe.model.policy.version import adapter_ref, weights_ref
from clawpipe.play.environments.openings import openings

_RESTARTS = 2  # restarts of a child that the kernel killed for lack of memory, each with half the pack length
_ON_TIMEOUT = (
    "run again: training resumes from its last checkpoint. To need less time: a GPU, fewer train.optimizer_steps x epochs, "
    "fewer rollouts; to allow more time: runtime.step_timeout"
)
_DETAILS = ("steps", "nonfinite", "grad_norm_max", "moved", "nothing_learnt", "moments_left")


def run_training(request: TrainRequest, work: Path, timeout: float, on_progress: Callable[[JsonObject], None]) -> Path:
    """Train in a child process, by the backend of the settings, which goes on from what it left in `work`. Return the outcome.

    A child that the kernel killed because memory ran out is restarted with smaller packs, which train the same steps. A child
    that a user killed is not restarted, since a later run of the same request resumes and produces the same bytes.

    Args:
        work: directory that only this run uses: request, log, lock and checkpoints.
        timeout: seconds.
        on_progress: called with the metrics of every optimizer step.

    Raises:
        ConfigError, DataError, TrainingError, BusyError: by the child's exit code; BusyError also on timeout.
        TrainingError: the backend left no outcome.
    """
    require_request(request)
    require_trainable(request.dtype)  # fail before the child's imports
    only_text = request.rendering is not None  # the child computes the reference log-probs
    require_token_scores(request.config, only_text or bool(request.token_scores))
    if is_finished(request):
        return Path(request.output)
    deadline, restarts = time.monotonic() + timeout, 0
    while True:
        killed_before = kernel_kills()
        try:
            _run(request, work, deadline - time.monotonic(), on_progress)
            return _complete(request)
        except (KilledError, MemoryShortError) as error:
            short = isinstance(error, MemoryShortError) or kernel_kills() != killed_before
            if restarts == _RESTARTS or not short:
                raise
        restarts += 1
        request = request.model_copy(update={"shrink": request.shrink + 1})


def _complete(request: TrainRequest) -> Path:
    if not is_finished(request):
        fix = "it has to end with clawpipe.learn.training.outcome.commit_outcome"
        raise TrainingError("the backend left no complete outcome", request.config.backend.name, fix)
    return Path(request.output)


def _run(request: TrainRequest, work: Path, seconds: float, on_progress: Callable[[JsonObject], None]) -> None:
    file = work / "request.json"
    write_atomic(file, request.model_dump_json(indent=2).encode())
    clear_error(work)
    try:
        with meter().occupied(request.device, request.processes):
            run_child(_command(file, request), work / "train.log", seconds, on_progress, who="the trainer", on_timeout=_ON_TIMEOUT)
    except ClawpipeError as error:
        raise read_error(work) or error from None


def _command(file: Path, request: TrainRequest) -> list[str]:
    """Return the command that starts the processes of the request in `file`."""
    alone = request.processes == 1 and request.accelerate is None
    return [sys.executable, "-m", "clawpipe.learn.training" if alone else "clawpipe.learn.training.process.torchrun", str(file)]


class NightSoFar(NamedTuple):
    """The place of a training in its night, and what the night hands it.

    Attributes:
        course: which round of which night this is.
        optimizer: the optimizer's state after the earlier rounds; None in the first.
        start: the policy that the night's first round started from.
    """

    course: Course
    optimizer: OptimizerRef | None
    start: ModelRef


def train_policy(
    store: Store,
    work: Path,
    samples: DatasetRef,
    start: ModelRef,
    token_scores: DatasetRef | None,
    config: Train,
    *,
    night: NightSoFar | None = None,
    environment: Played | None = None,
    max_tokens: int | None = None,
    temperature: float,
    seed: int,
    runtime: Runtime,
    on_progress: Callable[[JsonObject], None],
) -> StepResult:
    """Train on the samples from `start`; the output is the adapter or the whole weights, the details are the steps' metrics, and
    the extras the policies after every `train.probe_steps` optimizer steps, by names such as step-000004.

    The extra "optimizer" is the state that the night's next round goes on with, where another round may follow. Preference pairs
    that exist only as text are rendered as rollouts of `environment` are, of several those of the first; pairs with a side of more
    than `max_tokens` are filtered, whatever their tokens.

    A killed run resumes from its last checkpoint, which lies below `work` under the digest of the inputs.

    Raises:
        ConfigError: an adapter would start from a policy of whole weights, or the optimizer's state is not that of this night and
            policy.
        DataError, TrainingError, BusyError: see `clawpipe.learn.training.produce.run_training`.
    """
    if start.weights and config.adapter != "full":
        raise ConfigError(
            "an adapter cannot start from the champion, whose weights are merged",
            "train.start_from",
            "set it to base, or train.adapter to full",
        )
    if night and night.optimizer:
        night.course.require(night.optimizer, start)
    inputs = [samples, start, token_scores, config, max_tokens, temperature, seed, *(night or ())]
    run = work / "train" / sha256_json(inputs)[:24]
    spec = policy_spec(store, start)
    request = TrainRequest(
        **_rows(store, samples, token_scores),
        **_policy(spec, start, config),
        **(_of_night(store, start, config, night) if night else {}),
        **_placement(config, runtime),
        max_tokens=max_tokens,
        rendering=_rendering(environment, spec) if environment else None,
        config=config,
        temperature=temperature,
        seed=seed,
        output=str(run / "outcome"),
    )
    outcome = run_training(request, run, runtime.step_timeout, on_progress)
    parents = {ref.digest for ref in (samples, token_scores, start, night and night.optimizer) if ref}
    policy, kept = _publish_policies(store, request, outcome, start, parents)
    extras: dict[str, Ref] = {**kept}
    if night and request.is_gone_on_from:
        extras["optimizer"] = _publish_optimizer(store, outcome, night.course, policy)
    result = _result(request, outcome, samples.rows, policy, extras)
    shutil.rmtree(run)
    return result


def _rows(store: Store, samples: DatasetRef, token_scores: DatasetRef | None) -> dict[str, Any]:
    scores = dataset_files(store, token_scores) if token_scores else ()
    return {"samples": tuple(map(str, dataset_files(store, samples))), "token_scores": tuple(map(str, scores))}


def _policy(spec: PolicySpec, start: ModelRef, config: Train) -> dict[str, Any]:
    return {
        "base": spec.base,
        "base_digest": start.digest if start.weights else start.base,
        "dtype": spec.dtype,
        "quantization": "none" if config.adapter == "full" else spec.quantization,
        "init_adapter": spec.adapter,
    }


def _of_night(store: Store, start: ModelRef, config: Train, night: NightSoFar) -> dict[str, Any]:
    """Return what a round takes over; the reference is left out where it is the policy that the round starts from."""
    moved = config.spec.compares_with_start and night.start != start
    return {
        "course": night.course,
        "optimizer": str(store.require(night.optimizer)) if night.optimizer else None,
        "reference": _reference(store, night.start) if moved else None,
    }


def _placement(config: Train, runtime: Runtime) -> dict[str, Any]:
    if not config.backend.is_local:
        return {"device": "cpu"}
    return {
        "device": runtime.device,
        "threads": runtime.train_threads,
        "processes": runtime.train_processes,
        "accelerate": str(shipped(Path(runtime.accelerate))) if runtime.accelerate else None,
    }


def _reference(store: Store, policy: ModelRef) -> Reference:
    spec = policy_spec(store, policy)
    return Reference(base=spec.base, adapter=spec.adapter, version=policy.policy_version)


def _publish_policies(
    store: Store, request: TrainRequest, outcome: Path, start: ModelRef, parents: set[str]
) -> tuple[ModelRef, dict[str, ModelRef]]:
    """Publish the trained policy, and those after every `train.probe_steps` optimizer steps by their names."""
    whole = request.config.adapter == "full"
    name, remote = "model" if whole else "adapter", _summary(outcome).get("remote", {})
    manifest = {"kind": "model", "name": name, "base": start.base, "calls": start.tool_call_format, "dtype": start.dtype}
    ordered = tuple(sorted(parents))

    def publish(weights: Path) -> ModelRef:
        digest, _ = store.publish(name, lambda directory: _fill(directory, weights, manifest))
        return weights_ref(start, digest, ordered) if whole else adapter_ref(start, digest, ordered, remote.get(weights.name))

    return publish(request.weights), {kept.name: publish(kept) for kept in sorted((outcome / SNAPSHOTS).glob("*"))}


def _publish_optimizer(store: Store, outcome: Path, course: Course, policy: ModelRef) -> OptimizerRef:
    night, version = course.night, policy.policy_version
    manifest = {"kind": "optimizer", "name": OPTIMIZER, "night": night, "policy_version": version}
    digest, _ = store.publish(OPTIMIZER, lambda directory: _fill(directory, outcome / OPTIMIZER, manifest))
    return OptimizerRef(name=OPTIMIZER, digest=digest, parents=policy.parents, night=night, policy_version=version)


def _result(request: TrainRequest, outcome: Path, rows: int, policy: ModelRef, extras: dict[str, Ref]) -> StepResult:
    summary = _summary(outcome)
    steps = [json.loads(line) for line in (outcome / METRICS).read_text().splitlines()]
    signs = signs_of(steps, request.config.spec)
    return StepResult(
        output=policy,
        extras=extras,
        rows_in=rows,
        rows_out=summary["samples"],
        filtered=summary["filtered"],
        details={name: summary[name] for name in _DETAILS if summary.get(name) is not None}
        | {"updates": steps}
        | ({"signs": signs} if signs else {}),
    )


def _summary(outcome: Path) -> JsonObject:
    return json.loads((outcome / SUMMARY).read_bytes())


def _rendering(environment: Played, spec: PolicySpec) -> Rendering:
    return Rendering(opening=openings(environment)[0], tool_call_format=spec.tool_call_format)


def _fill(directory: Path, source: Path, manifest: JsonObject) -> JsonObject:
    shutil.copytree(source, directory, dirs_exist_ok=True)
    return manifest
