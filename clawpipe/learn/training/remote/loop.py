"""The loop of a training at a service: as many steps on the same rows as the local trainer takes, each saved before the next."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clawpipe.core.config.rates import rate_of
from clawpipe.core.store.files import write_atomic
from clawpipe.errors import DataError, TrainingError
from clawpipe.learn.training.backends import OnStep
from clawpipe.learn.training.data.packing import flat_batch, inputs_of
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.losses.batch import Objective, trained_tokens
from clawpipe.learn.training.model.build import width_of
from clawpipe.learn.training.model.scores import Scores
from clawpipe.learn.training.outcome import commit_outcome
from clawpipe.learn.training.remote.adapter import movement
from clawpipe.learn.training.remote.journal import Journal, Metrics
from clawpipe.learn.training.remote.losses import named_loss
from clawpipe.learn.training.remote.session import OpenSession, Session, StepLoss
from clawpipe.learn.training.request import ADAPTER, TrainRequest, snapshot_name
from clawpipe.learn.training.run import job_of
from clawpipe.learn.training.trainers.accumulator import Accumulator
from clawpipe.learn.training.trainers.early_stopping import Limits, stop_reason
from clawpipe.learn.training.trainers.job import TrainingJob
from clawpipe.learn.training.trainers.schedule import stretch_of, warmup_steps

_STATE = "remote.json"  # in the outcome's optimizer directory: where the night's next round goes on
Rows = Sequence[Sample]


def train_at(open_session: OpenSession, request: TrainRequest, work: Path, on_step: OnStep) -> None:
    """Train, from the last step that the service has saved, and commit the complete outcome directory.

    Raises:
        DataError: no row can be trained on, or the service has lost what was saved.
        TrainingError: a log-prob, loss, gradient or weight is not finite; or recorded log-probs had no effect.
        ConfigError, BusyError: see the session.
    """
    job, away = _at_temperature_one(job_of(request.model_copy(update={"temperature": 1.0})))  # of rows that record none
    shared = not request.config.probe_steps  # policies between steps are kept here alone, until the outcome is whole
    journal, exported = Journal(work / "journal.json", request.identity(), shared=shared), work / "exported"
    if not journal.steps:
        shutil.rmtree(request.snapshots, ignore_errors=True)  # of a run with other settings, data or code
        shutil.rmtree(exported, ignore_errors=True)
    if not exported.exists():
        session = open_session(journal.state or _state_before(request))
        _Training(session, open_session, request, job, journal).run(on_step)
        _keep_policy(session, journal, ADAPTER, exported)
    job.check(journal.steps)
    summary = {
        "samples": len(job.rows) // job.rows_each,
        "filtered": job.filtered | away,
        "stopped": stop_reason(journal.steps, Limits(request.config.max_kl)),
        "moved": movement(exported, request.init_adapter),
        "remote": journal.samplers,
    }
    fill = partial(shutil.copytree, exported)
    commit_outcome(request, journal.steps, summary, fill, partial(_write_state, state=str(journal.state)))
    shutil.rmtree(exported)
    (work / "journal.json").unlink(missing_ok=True)  # another machine's is an object alone


def _at_temperature_one(job: TrainingJob) -> tuple[TrainingJob, dict[str, int]]:
    """Return the job with the rows whose log-probs are those at temperature 1, and a count of the others."""
    each = job.rows_each
    wholes = [job.rows[first : first + each] for first in range(0, len(job.rows), each)]
    kept = [whole for whole in wholes if all(row.temperature == 1.0 for row in whole)]
    if not kept:
        fix = "roll out with rollouts.temperature=1, or set train.backend=local"
        raise DataError("all rows were sampled at a temperature other than 1, and the service computes no other", "samples", fix)
    away = len(wholes) - len(kept)
    return job._replace(rows=[row for whole in kept for row in whole]), {"another_temperature": away} if away else {}


def _state_before(request: TrainRequest) -> str | None:
    """Return where the service keeps what the night's round before this one left."""
    return json.loads((request.moments / _STATE).read_bytes())["state"] if request.moments else None


def _write_state(directory: Path, state: str) -> None:
    write_atomic(directory / _STATE, json.dumps({"state": state}).encode())


class _Training:
    """The optimizer steps of one training, in a session."""

    def __init__(
        self, session: Session, open_session: OpenSession, request: TrainRequest, job: TrainingJob, journal: Journal
    ) -> None:
        self._session, self._open, self._request, self._job, self._journal = session, open_session, request, job, journal

    def run(self, on_step: OnStep) -> None:
        rows = self._job.complete(self._job.rows, self._score)
        plan = list(self._plan(rows))
        for number in range(len(self._journal.steps) + 1, len(plan) + 1):
            if self._journal.steps and stop_reason(self._journal.steps, Limits(self._request.config.max_kl)):
                return
            metrics = {"step": number} | self._step(plan[number - 1], number, len(plan))
            self._keep(number)
            self._journal.add_step(metrics, self._session.save(snapshot_name(number)))
            on_step({"of": len(plan)} | metrics)

    def _plan(self, rows: Rows) -> Iterator[list[Sample]]:
        """Yield the rows of each optimizer step, as the local trainer plans them."""
        config, job = self._request.config, self._job
        steps = job.steps_for(config, rows)
        for packs in job.plan(rows, sys.maxsize, steps, self._request.seed, config.epochs)[: config.max_steps]:
            yield [rows[index] for pack in packs for index in pack]

    def _step(self, rows: Rows, number: int, steps: int) -> Metrics:
        accumulator, batch, objective = Accumulator(), flat_batch(rows), self._job.objective
        size = objective.size(batch)

        def mean(logprobs: Tensor) -> Tensor:
            return objective.summed(Scores(logprobs, None), batch)[0] / size

        logprobs = self._session.add_gradient(rows, StepLoss(mean, named_loss(objective, batch, size)))
        with torch.no_grad():
            total, parts = objective.summed(Scores(logprobs, None), batch)
        _require_finite(logprobs, total, number)
        rate = self._rate(number, steps)
        norm = self._session.step(rate)
        _require_finite(torch.tensor(norm or 0.0), total, number)
        accumulator.add(parts, trained_tokens(objective, batch), sum(len(inputs_of(row)) for row in rows))
        metrics = _finished(objective, accumulator)
        metrics |= {"loss": float(total) / size, "learning_rate": rate, "epoch": number / steps}
        return metrics | ({"grad_norm": norm} if norm is not None else {})

    def _rate(self, number: int, steps: int) -> float:
        config, stretch = self._request.config, stretch_of(self._request)
        warmup = warmup_steps(config, steps * stretch.rounds)
        factor = stretch.rate_factor(number - 1, steps, config.lr_scheduler_type, warmup)
        return rate_of(config, width_of(self._request.base)) * factor

    def _keep(self, number: int) -> None:
        """Keep the policy after every `train.probe_steps` steps."""
        every, directory = self._request.config.probe_steps, self._request.snapshots / snapshot_name(number)
        if every and number % every == 0 and not directory.exists():
            _keep_policy(self._session, self._journal, directory.name, directory)

    def _score(self, rows: Rows, *, reference: bool = False) -> list[np.ndarray]:
        """Return log-probs from before the first step, which are computed once."""
        found = self._journal.next_scores()
        if found is None:
            moved = reference and self._request.reference is not None
            session = self._open(None) if moved else self._session
            found = [row.tolist() for row in session.logprobs(rows)]
            self._journal.add_scores(found)
        return [np.asarray(row, np.float32) for row in found]


def _keep_policy(session: Session, journal: Journal, name: str, directory: Path) -> None:
    """Let the service keep the present weights for sampling, and write them into a new directory here."""
    if name not in journal.samplers:
        journal.add_sampler(name, session.save_for_sampling(name))
    session.export(name, directory)


def _finished(objective: Objective, accumulator: Accumulator) -> Metrics:
    metrics = objective.finish(accumulator.drain())
    return {name: value for name, value in metrics.items() if np.isfinite(value)}


def _require_finite(values: Tensor, loss: Tensor, number: int) -> None:
    """Raise unless all values are finite: a gradient that was added at the service cannot be taken back.

    Raises:
        TrainingError: a value is not finite.
    """
    if not (torch.isfinite(values).all() and torch.isfinite(loss)):
        fix = "lower train.learning_rate or train.max_grad_norm"
        raise TrainingError("the service's log-probs, loss or gradient are not finite", f"optimizer step {number}", fix)
