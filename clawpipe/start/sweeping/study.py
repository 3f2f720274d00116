"""The study of a sweep: its trials, their values and results. Several processes may share it.

A running trial whose process has died is free, so the holder of the sweep's lock takes it up again with the same values;
its night then resumes where it was killed.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import MedianPruner
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.system import faults
from clawpipe.record.nights.status import NightStatus
from clawpipe.start.sweeping.space import draw
from clawpipe.start.sweeping.sweep import read_sweep

_WAIT_SECONDS = 60  # longest wait for another process that writes to the study
_UNPRUNED = 4  # number of trials that must have ended before others are compared with their median
_SLOT = "slot"


class Study:
    """Trials of the sweep in `directory`.

    Raises:
        DataError: there is no sweep.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.sweep = directory, read_sweep(directory)
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # the results say the rest
        storage = RDBStorage(f"sqlite:///{directory / 'study.db'}", engine_kwargs={"connect_args": {"timeout": _WAIT_SECONDS}})
        self._study = optuna.create_study(
            storage=storage,
            study_name="sweep",
            direction="maximize",
            load_if_exists=True,
            pruner=MedianPruner(n_startup_trials=_UNPRUNED),
        )
        self._taken: set[int] = set()
        self._lock = threading.Lock()

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials by number."""
        return self._study.get_trials(deepcopy=False)

    def is_done(self, limit: int) -> bool:
        """Return whether there are `limit` trials and all have ended."""
        trials = self.trials
        return len(trials) >= limit and all(trial.state.is_finished() for trial in trials)

    def take(self, slot: int, slots: int, limit: int) -> int | None:
        """Take a trial for one of `slots` runners: an interrupted one, else a new one; None once there are `limit` trials.

        Returns:
            the trial's number; its values are drawn.
        """
        with self._lock:
            trials = self.trials
            left = [trial for trial in trials if trial.state == TrialState.RUNNING and trial.number not in self._taken]
            mine = [trial for trial in left if trial.user_attrs.get(_SLOT, slot) in {slot, *range(slots, len(trials) + 1)}]
            if mine:
                trial = self._trial(mine[0].number)
            elif len(trials) < limit:
                trial = self._new(len(trials))
            else:
                return None
            self._taken.add(trial.number)
            trial.set_user_attr(_SLOT, slot)
            draw(trial, self.sweep.space)
            faults.kill_point("sweep.after_draw", str(trial.number))
            return trial.number

    def night(self, number: int) -> NightConfig:
        """Return the settings of a trial.

        Raises:
            ConfigError: its values contradict each other.
        """
        return self.sweep.night(number, draw(self._trial(number), self.sweep.space))

    def note(self, number: int, **notes: Any) -> None:
        """Store notes about a trial, as JSON."""
        for name, value in notes.items():
            self._trial(number).set_user_attr(name, value)

    def notes(self, number: int) -> JsonObject:
        """Return the notes about a trial."""
        return self.trials[number].user_attrs

    def prune(self, number: int, rounds: int, success: float) -> bool:
        """Report the success of a trial's policy after so many rounds. Returns whether the trial should stop."""
        trial = self._trial(number)
        trial.report(success, rounds)
        return trial.should_prune()

    def complete(self, number: int, status: NightStatus) -> None:
        """Record that the trial has its verdict."""
        figures = status.heldout["candidate"]
        if figures is None:
            self.fail(number, "no held-out item was evaluated without an error")
            return
        self.note(number, heldout=figures.model_dump(mode="json"), verdict=status.verdict)
        faults.kill_point("sweep.before_tell", str(number))
        self._study.tell(number, figures.success)

    def drop(self, number: int) -> None:
        """Record that the trial was pruned."""
        self._study.tell(number, state=TrialState.PRUNED)

    def fail(self, number: int, error: str) -> None:
        """Record that the trial failed; a trial that has ended stays as it is."""
        if self.trials[number].state == TrialState.RUNNING:
            self.note(number, error=error)
            self._study.tell(number, state=TrialState.FAIL)

    def _trial(self, number: int) -> Trial:
        return Trial(self._study, self.trials[number]._trial_id)  # pyright: ignore[reportPrivateUsage]  # Optuna has no public way to continue a trial

    def _new(self, number: int) -> Trial:
        """Start a trial whose sampler depends on the seed and the earlier trials, not on how often the sweep was interrupted."""
        seed = int(sha256_json([self.sweep.seed, number])[:8], 16)
        self._study.sampler = TPESampler(seed=seed, constant_liar=True)
        return self._study.ask()
