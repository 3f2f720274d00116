"""Trials of a sweep: each is a night up to its verdict, run in this process or by the workers of a pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow, flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, WorkerStatus
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound

from clawpipe.core.config import NightConfig
from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.permissions import keep_private
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.errors import BusyError, ClawpipeError, NotFoundError
from clawpipe.record.nights.status import NightStatus
from clawpipe.record.registry.client import changes
from clawpipe.record.registry.runs import experiment_id
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.tracking.rewards import SUCCESS, round_rewards
from clawpipe.start.sweeping.results import write_best
from clawpipe.start.sweeping.study import Study
from clawpipe.start.sweeping.sweep import trial_environment
from flows.nightly import RUNNER, the_night
from flows.opening import close_night, ledger_of, open_night
from flows.runners import PrefectRunner
from tasks.data import score
from tasks.evaluation import gate
from tasks.step import Call, Runner, run_by

_POLL_SECONDS = 2.0


class _VerdictReached(Exception):  # noqa: N818 - a way out, no error
    """The gate has decided, so the trial ends."""


class _Pruned(Exception):  # noqa: N818
    """The trial is worse than others, so it stops."""


@flow(name="sweep-trial", task_runner=RUNNER, persist_result=False)
def sweep_trial(sweep: str, number: int) -> None:
    """Run one trial of a sweep: a night up to its verdict. Nothing is registered or promoted.

    Args:
        sweep: the sweep's directory.
        number: number of the trial, whose settings and outcome are in the sweep's study.
    """
    keep_private()
    study = Study(Path(sweep))
    config = study.night(number)
    try:
        status = _night(study, number, config)
    except _Pruned:
        study.drop(number)
    else:
        study.complete(number, status)


def _night(study: Study, number: int, config: NightConfig) -> NightStatus:
    with open_night(config, Home(study.directory.parents[1])) as night:
        study.note(number, night=night.night, run_dir=str(night.journal.run_dir))
        runner: Runner = UpToTheVerdict(PrefectRunner(night.journal, night.home))
        if config.rollouts:
            runner = Pruning(runner, open_store(night.home), lambda rounds, success: study.prune(number, rounds, success))
        with suppress(_VerdictReached), run_by(runner):
            the_night(night)
        return close_night(night, counts_evidence=number == 0)


class UpToTheVerdict:
    """A runner that ends the night when the gate has decided."""

    def __init__(self, inner: Runner) -> None:
        self._inner = inner

    def run(self, call: Call) -> StepResult:
        result = self._inner.run(call)
        if call.task is gate.task:
            raise _VerdictReached
        return result

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        return self._inner.run_together(calls)


class Pruning:
    """A runner that asks after each round whether the trial should stop.

    The rollouts of the next round show what a round has taught: their share of successes, on training items, measures the
    policy after so many rounds. The first round's rollouts are the start policy's and say nothing about a trial.

    Args:
        prune: takes the number of rounds and the share of successes; returns whether to stop.
    """

    def __init__(self, inner: Runner, store: Store, prune: Callable[[int, float], bool]) -> None:
        self._inner, self._store, self._prune = inner, store, prune
        self._parts: list[str] = []  # names of the rounds so far
        self._scores: DatasetRef | None = None

    def run(self, call: Call) -> StepResult:
        if self._scores is not None and call.task is not score.task:
            self._report(self._scores)
        result = self._inner.run(call)
        if call.task is score.task:
            self._note(call.name.rpartition("/")[0], result.dataset)
        return result

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        return self._inner.run_together(calls)

    def _note(self, part: str, scores: DatasetRef) -> None:
        """Keep the round's last scores: the round's own rollouts come after stored data."""
        if part not in self._parts:
            self._parts.append(part)
        if len(self._parts) > 1:
            self._scores = scores

    def _report(self, scores: DatasetRef) -> None:
        self._scores = None
        success = round_rewards(self._store, [scores]).get(SUCCESS)
        if success is not None and self._prune(len(self._parts) - 1, success):
            raise _Pruned


RunTrial = Callable[[int, int], None]


def run_trials(study: Study, trials: int, slots: int, run: RunTrial) -> None:
    """Run the sweep until it has `trials` trials, `slots` at a time. An error ends only the trial that raised it.

    Args:
        run: runs trial `number` in slot `slot` and writes the outcome into the study.
    """
    if slots == 1:  # in the main thread, so that an interrupt ends it
        return _work(study, trials, slots, run, 0)
    with ThreadPoolExecutor(slots) as pool:
        for work in [pool.submit(_work, study, trials, slots, run, slot) for slot in range(slots)]:
            work.result()
    return None


def prepare_registry(study: Study, home: Home) -> None:
    """Create what trials share in the home's MLflow, since each trial locks only the trial's home."""
    tracking = Tracking.of(home, study.sweep.config.registry.model_name)
    with changes(tracking) as client:
        experiment_id(client, tracking)
    config = study.sweep.config
    ledger_of(home, config).begin(config.draw or study.sweep.name)


def _work(study: Study, trials: int, slots: int, run: RunTrial, slot: int) -> None:
    while (number := study.take(slot, slots, trials)) is not None:
        try:
            run(number, slot)
        except Exception as error:  # one trial's error must not end the others
            study.fail(number, error.what if isinstance(error, ClawpipeError) else f"{type(error).__name__}: {error}")
        write_best(study)


def here(study: Study) -> RunTrial:
    """Return a function that runs trials in this process."""
    return lambda number, slot: sweep_trial(str(study.directory), number)


def on_pool(study: Study, home: Home, pool: str) -> RunTrial:
    """Return a function that runs trials as flow runs on a work pool, whose workers see the home's files.

    Raises:
        NotFoundError: the pool does not exist.
        BusyError: no worker of the pool is online.
    """
    _require_workers(pool)
    source: Flow = flow.from_source(source=str(project_directory()), entrypoint="flows/sweep.py:sweep_trial")  # type: ignore[assignment]
    source.to_deployment(name=pool, work_pool_name=pool).apply()  # type: ignore[union-attr]

    def run(number: int, slot: int) -> None:
        known = study.notes(number).get("flow_run")
        state = _state(UUID(known)) if known else None
        if state is None or state.is_final():  # otherwise the run outlived the process that started it
            env = trial_environment(home, study.directory, slot)
            parameters = {"sweep": str(study.directory), "number": number}
            submitted: Any = run_deployment(
                f"sweep-trial/{pool}", parameters=parameters, job_variables={"env": env}, timeout=0, as_subflow=False
            )
            known = str(submitted.id)
            study.note(number, flow_run=known)
        _await(study, number, UUID(known))

    return run


def _await(study: Study, number: int, run: UUID) -> None:
    while True:
        state = _state(run)
        if state is None or state.is_final():
            study.fail(number, f"its flow run {run} ended {state.name if state else 'unseen'}: {state.message if state else ''}")
            return
        time.sleep(_POLL_SECONDS)


def _state(run: UUID) -> State | None:
    with get_client(sync_client=True) as client:
        try:
            return client.read_flow_run(run).state
        except ObjectNotFound:
            return None


def _require_workers(pool: str) -> None:
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(pool)
        except ObjectNotFound:
            raise NotFoundError("the work pool does not exist", pool, "`clawpipe up` makes the pool `clawpipe`") from None
        workers = client.read_workers_for_work_pool(pool)
    if not any(worker.status == WorkerStatus.ONLINE for worker in workers):
        raise BusyError("no worker of the pool is online", pool, f"start one: `clawpipe up`, or prefect worker start --pool {pool}")
