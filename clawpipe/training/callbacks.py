"""Hooks into transformers' training loop."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from clawpipe import faults
from clawpipe.training.distributed import from_main


class SaveByTime(TrainerCallback):
    """Ask for a checkpoint after the first update that ends `seconds` after the last one: steps differ too much in length."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._last = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        faults.point("train.after_step")
        if from_main(lambda: time.monotonic() - self._last >= self._seconds):  # all processes have to write together
            control.should_save = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._last = time.monotonic()
