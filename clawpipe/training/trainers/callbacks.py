"""Hooks into transformers' training loop."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from clawpipe import faults
from clawpipe.training.process.collectives import from_main


class Rhythm(NamedTuple):
    """Checkpoints after the first update that ends `seconds` after the last one, and after every `steps` updates."""

    seconds: float = math.inf
    steps: int | None = None


class SaveCheckpoints(TrainerCallback):
    """Ask for checkpoints: by time, for updates differ too much in length, and by their number where that is asked for."""

    def __init__(self, rhythm: Rhythm) -> None:
        self._rhythm = rhythm
        self._last = time.monotonic()

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._last = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        faults.point("train.after_step")
        due = bool(self._rhythm.steps) and state.global_step % self._rhythm.steps == 0
        if due or from_main(lambda: time.monotonic() - self._last >= self._rhythm.seconds):  # all processes write together
            control.should_save = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._last = time.monotonic()
