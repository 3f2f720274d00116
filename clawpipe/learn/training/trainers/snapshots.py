"""Keep the policy after every few optimizer steps, so that a step of the night can try it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class KeepSnapshots(TrainerCallback):
    """Calls `keep` with the number of every `every`-th optimizer step, before the checkpoint of that step is written: a run that
    resumes from it has kept what came before."""

    def __init__(self, every: int, keep: Callable[[int], None]) -> None:
        self._every, self._keep = every, keep

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step % self._every == 0:
            self._keep(state.global_step)
