"""Check before generation that engine and trainer compute the same log-probs as the model's own forward."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.runtime import Runtime
from clawpipe.core.config.training import Train
from clawpipe.core.store.files import write_atomic
from clawpipe.core.system.devices import meter
from clawpipe.core.system.progress import report
from clawpipe.errors import ClawpipeError, DataError
from clawpipe.learn.children.ranks import clear_error, read_error
from clawpipe.learn.children.run import run_child
from clawpipe.learn.training.check_request import TrainerCheckRequest
from clawpipe.model.policy.agreement import (
    OTHER_MODEL,
    OTHER_SERVER,
    OTHER_SERVICE,
    Agreement,
    Bound,
    EngineAgreement,
    Part,
    require_agreement,
)
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.play.rollouts.generate import engine_bound
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import CheckRequest, Job

_EMBEDDED = EngineSpec()


def check_model(
    pool: WorkerPool, work: Path, policy: PolicySpec, train: Train | None, runtime: Runtime, engine: EngineSpec = _EMBEDDED
) -> list[Agreement]:
    """Compare engine and trainer with the model's plain forward, on a few conversations, each in the process that it runs in.

    Args:
        work: directory that only this check uses.
        train: how the policy will be trained; None if it is only scored.
        engine: samples the rollouts.

    Returns:
        the agreement of the engine and of the trainer.

    Raises:
        DataError: either differs by more than its precision explains, or cannot run this model.
        ConfigError, BusyError: see the workers and `clawpipe.learn.children.run.run_child`.
    """
    found = []
    for figures, bound in compare_model(pool, work, policy, train, runtime, engine):
        require_agreement(figures, bound, policy.base, _fix(figures.part, engine, train))
        found.append(figures)
    return found


def compare_model(
    pool: WorkerPool, work: Path, policy: PolicySpec, train: Train | None, runtime: Runtime, engine: EngineSpec = _EMBEDDED
) -> Iterator[tuple[Agreement, Bound]]:
    """Yield the agreement of the engine, then of the trainer if it tells log-probs, each with its bound. Arguments and errors are
    those of `check_model`."""
    request = TrainerCheckRequest(policy=policy, train=train, device=runtime.device, threads=runtime.train_threads)
    report(0, 1 + request.has_scores, "loading engine")
    of_engine = EngineAgreement.model_validate(pool.run(Job(request=CheckRequest(policy=policy, engine=engine))))
    bound = engine_bound(policy, engine)
    if of_engine.where:  # one of several servers, which has to be named
        require_agreement(of_engine, bound, of_engine.where, OTHER_SERVER)
    yield of_engine.figures, bound
    request = request.model_copy(update={"sampled": of_engine.sampled})
    if request.has_scores:
        report(1, 2, "loading trainer")
        yield _ask_trainer(request, work, runtime.step_timeout), request.bound


def _fix(part: Part, engine: EngineSpec, train: Train | None) -> str:
    """Return what to do where log-probs differ: nobody here knows what a server or a service holds."""
    if part == "engine":
        return OTHER_SERVER if engine.is_policy_server else OTHER_MODEL
    return OTHER_MODEL if train is None or train.backend.is_local else OTHER_SERVICE


def _ask_trainer(request: TrainerCheckRequest, work: Path, seconds: float) -> Agreement:
    file = work / "request.json"
    write_atomic(file, request.model_dump_json(indent=2).encode())
    lines: list[JsonObject] = []
    command = [sys.executable, "-m", "clawpipe.learn.training.check", str(file)]
    who, advice = "the trainer's check", "raise runtime.step_timeout"
    clear_error(work)
    try:
        with meter().occupied(request.device):
            run_child(command, work / "check.log", seconds, lines.append, who=who, on_timeout=advice)
    except ClawpipeError as error:
        raise read_error(work) or error from None
    if error := lines[-1].get("error"):
        raise DataError(error["what"], error["where"], error["fix"])
    return Agreement.model_validate(lines[-1])
