"""A sweep's trials: each a night up to its verdict, in this process or on the workers of a pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow, Task, flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, WorkerStatus
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound

from clawpipe.config import NightConfig
from clawpipe.errors import BusyError, ClawpipeError, NotFoundError
from clawpipe.nights.record import NightStatus
from clawpipe.registry.client import changes
from clawpipe.registry.runs import experiment_id
from clawpipe.registry.tracking import Tracking
from clawpipe.services.stack import project_directory
from clawpipe.store.artifacts import Store
from clawpipe.store.home import Home
from clawpipe.store.open import open_store
from clawpipe.store.refs import DatasetRef, StepResult
from clawpipe.sweeping.results import write_best
from clawpipe.sweeping.study import Study
from clawpipe.sweeping.sweep import trial_environment
from clawpipe.tracking.rewards import SUCCESS, round_rewards
from flows.closing import close_night
from flows.nightly import RUNNER, the_night
from flows.opening import open_night
from flows.steps import Steps
from tasks.data import score
from tasks.evaluation import gate

_POLL_SECONDS = 2.0


class _EndedError(Exception):
    """A trial's night ends here, by plan."""


class _PrunedError(_EndedError):
    """It does no better than others did."""


@flow(name="sweep-trial", task_runner=RUNNER, persist_result=False)
def sweep_trial(sweep: str, number: int) -> None:
    """One trial of a sweep: a night up to its verdict. Nothing is registered or promoted.

    Args:
        sweep: directory of the sweep.
        number: the trial, whose settings are in the sweep's study and whose outcome goes there.
    """
    study = Study(Path(sweep))
    config = study.night(number)
    try:
        status = _night(study, number, config)
    except _PrunedError:
        study.drop(number)
    else:
        study.complete(number, status)


def _night(study: Study, number: int, config: NightConfig) -> NightStatus:
    with open_night(config) as night:
        study.note(number, night=night.night, run_dir=str(night.journal.run_dir))
        steps = TrialSteps(night.do, open_store(night.home), lambda rounds, success: study.prune(number, rounds, success))
        try:
            the_night(steps if config.rollouts else JudgedSteps(night.do), night)
        except _PrunedError:
            raise
        except _EndedError:
            pass
        return close_night(night)


class JudgedSteps:
    """Calls a night's steps up to the verdict."""

    def __init__(self, do: Steps) -> None:
        self._do = do

    def __call__(self, task: Task[..., StepResult], *, name: str = "", **inputs: Any) -> Any:
        result = self._do(task, name=name, **inputs)
        if task is gate:
            raise _EndedError
        return result

    def map(self, task: Task[..., StepResult], over: str, values: Sequence[Any], **inputs: Any) -> list[Any]:
        return self._do.map(task, over, values, **inputs)

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        with self._do.within(part):
            yield


class TrialSteps(JudgedSteps):
    """Besides, asks after each round whether to go on.

    What a round taught shows in the rollouts of the next one: the share of them that succeed, on training items, says how
    the policy of so many rounds does. Those of the first round are the start policy's and say nothing about a trial.

    Args:
        prune: told after how many rounds which share; returns whether to stop.
    """

    def __init__(self, do: Steps, store: Store, prune: Callable[[int, float], bool]) -> None:
        super().__init__(do)
        self._store, self._prune = store, prune
        self._rounds = -1  # that have taught the policy of the present one
        self._scores: DatasetRef | None = None

    def __call__(self, task: Task[..., StepResult], *, name: str = "", **inputs: Any) -> Any:
        if self._scores is not None and task is not score:
            self._report(self._scores)
        result = super().__call__(task, name=name, **inputs)
        if task is score and self._rounds > 0:
            self._scores = result.dataset  # of several the last one: the round's own rollouts come after stored data
        return result

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        self._rounds += 1
        with super().within(part):
            yield

    def _report(self, scores: DatasetRef) -> None:
        self._scores = None
        success = round_rewards(self._store, [scores]).get(SUCCESS)
        if success is not None and self._prune(self._rounds, success):
            raise _PrunedError


RunTrial = Callable[[int, int], None]


def run_trials(study: Study, trials: int, slots: int, run: RunTrial) -> None:
    """Run the sweep until it has `trials` trials, `slots` at a time. The error of a trial is its own.

    Args:
        run: runs a trial, by number, in a slot; the outcome is in the study then.
    """
    if slots == 1:  # in the main thread: an interrupt ends it
        return _work(study, trials, slots, run, 0)
    with ThreadPoolExecutor(slots) as pool:
        for work in [pool.submit(_work, study, trials, slots, run, slot) for slot in range(slots)]:
            work.result()
    return None


def prepare_registry(study: Study, home: Home) -> None:
    """Make what the trials share in the home's MLflow: each holds a lock of its own."""
    tracking = Tracking.of(home, study.sweep.config.registry.model_name)
    with changes(tracking) as client:
        experiment_id(client, tracking)


def _work(study: Study, trials: int, slots: int, run: RunTrial, slot: int) -> None:
    while (number := study.take(slot, slots, trials)) is not None:
        try:
            run(number, slot)
        except Exception as error:  # whatever it is, the other trials do not suffer for it
            study.fail(number, error.what if isinstance(error, ClawpipeError) else f"{type(error).__name__}: {error}")
        write_best(study)


def here(study: Study) -> RunTrial:
    """Runs trials in this process."""
    return lambda number, slot: sweep_trial(str(study.directory), number)


def on_pool(study: Study, home: Home, pool: str) -> RunTrial:
    """Runs trials as flow runs of a deployment on a work pool, whose workers see the home's files.

    Raises:
        NotFoundError: no such pool.
        BusyError: none of its workers is online.
    """
    _require_workers(pool)
    source: Flow = flow.from_source(source=str(project_directory()), entrypoint="flows/sweep.py:sweep_trial")  # type: ignore[assignment]
    source.to_deployment(name=pool, work_pool_name=pool).apply()  # type: ignore[union-attr]

    def run(number: int, slot: int) -> None:
        known = study.facts(number).get("flow_run")
        state = _state(UUID(known)) if known else None
        if state is None or state.is_final():  # else it outlived whoever started it
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
            raise NotFoundError("no such work pool", pool, "`clawpipe up` makes the pool `clawpipe`") from None
        workers = client.read_workers_for_work_pool(pool)
    if not any(worker.status == WorkerStatus.ONLINE for worker in workers):
        raise BusyError("no worker of the pool is online", pool, f"start one: `clawpipe up`, or prefect worker start --pool {pool}")
