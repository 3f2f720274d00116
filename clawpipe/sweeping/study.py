"""The study of a sweep: which trials there are, what they were given, how they ended. Several processes may share it.

A trial that is under way belongs to nobody once its process is gone, so whoever holds the sweep's lock takes it up again
with the values that it had; its night then goes on where it was killed.
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

from clawpipe import faults
from clawpipe.config.night import NightConfig
from clawpipe.nights.record import NightStatus
from clawpipe.store.digests import sha256_json
from clawpipe.sweeping.space import draw
from clawpipe.sweeping.sweep import read_sweep

_WAIT_SECONDS = 60  # for another process that writes to the study
_UNPRUNED = 4  # trials that must have ended before one is compared with their median
_SLOT = "slot"


class Study:
    """Trials of the sweep that lies in `directory`.

    Raises:
        DataError: none does.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.sweep = directory, read_sweep(directory)
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # what it would say, the results say
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
        """In the order of their numbers."""
        return self._study.get_trials(deepcopy=False)

    def is_done(self, limit: int) -> bool:
        """Whether there are `limit` trials and all have ended."""
        trials = self.trials
        return len(trials) >= limit and all(trial.state.is_finished() for trial in trials)

    def take(self, slot: int, slots: int, limit: int) -> int | None:
        """A trial for one of `slots` runners: one that was interrupted, else a new one; None once there are `limit` trials.

        Returns:
            its number; the values are drawn.
        """
        with self._lock:
            trials = self.trials
            left = [one for one in trials if one.state == TrialState.RUNNING and one.number not in self._taken]
            mine = [one for one in left if one.user_attrs.get(_SLOT, slot) in {slot, *range(slots, len(trials) + 1)}]
            if mine:
                trial = self._trial(mine[0].number)
            elif len(trials) < limit:
                trial = self._new(len(trials))
            else:
                return None
            self._taken.add(trial.number)
            trial.set_user_attr(_SLOT, slot)
            draw(trial, self.sweep.space)
            faults.point("sweep.after_draw", str(trial.number))
            return trial.number

    def night(self, number: int) -> NightConfig:
        """The settings of a trial.

        Raises:
            ConfigError: its values do not go together.
        """
        return self.sweep.night(number, draw(self._trial(number), self.sweep.space))

    def note(self, number: int, **facts: Any) -> None:
        """Write something down about a trial; JSON."""
        for name, value in facts.items():
            self._trial(number).set_user_attr(name, value)

    def facts(self, number: int) -> dict[str, Any]:
        """What is written down about a trial."""
        return self.trials[number].user_attrs

    def prune(self, number: int, rounds: int, success: float) -> bool:
        """Report how the policy of a trial did after so many rounds. Returns whether the trial is to stop."""
        trial = self._trial(number)
        trial.report(success, rounds)
        return trial.should_prune()

    def complete(self, number: int, status: NightStatus) -> None:
        """The trial came to a verdict."""
        figures = status.heldout["candidate"]
        if figures is None:
            self.fail(number, "no held-out item was evaluated without an error")
            return
        self.note(number, heldout=figures.model_dump(mode="json"), verdict=status.verdict)
        faults.point("sweep.before_tell", str(number))
        self._study.tell(number, figures.success)

    def drop(self, number: int) -> None:
        """The trial was pruned."""
        self._study.tell(number, state=TrialState.PRUNED)

    def fail(self, number: int, error: str) -> None:
        """The trial came to nothing; one that has ended already stays as it is."""
        if self.trials[number].state == TrialState.RUNNING:
            self.note(number, error=error)
            self._study.tell(number, state=TrialState.FAIL)

    def _trial(self, number: int) -> Trial:
        return Trial(self._study, self.trials[number]._trial_id)  # Optuna's own way to go on with a trial has no public name

    def _new(self, number: int) -> Trial:
        """Its sampler depends on the seed and on what trials there are, never on how often the sweep was interrupted."""
        seed = int(sha256_json([self.sweep.seed, number])[:8], 16)
        self._study.sampler = TPESampler(seed=seed, constant_liar=True)
        return self._study.ask()
