"""The training loop over packs of rows, on transformers' Trainer; subclasses compute the loss."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from clawpipe.core.system import faults
from clawpipe.errors import ConfigError, TrainingError
from clawpipe.learn.training.checkpoint.files import Checkpoints
from clawpipe.learn.training.checkpoint.moments import trainable
from clawpipe.learn.training.checkpoint.state import load_best, load_optimizer, load_random, load_weights, save_state
from clawpipe.learn.training.data.packing import Pack, build_pack
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.losses.batch import Batch, Objective, trained_tokens
from clawpipe.learn.training.model.scores import Scores
from clawpipe.learn.training.model.scoring_head import install_scoring_head, learn_entropy, score_pack
from clawpipe.learn.training.process.collectives import all_gather, barrier, broadcast_from_main
from clawpipe.learn.training.trainers.accumulator import Accumulator
from clawpipe.learn.training.trainers.early_stopping import Limits, best_step, stop_reason
from clawpipe.learn.training.trainers.optimizer import KeepsMasterWeights
from clawpipe.learn.training.trainers.schedule import InANight, Stretch


class Rhythm(NamedTuple):
    """When checkpoints are written: after the first step that ends `seconds` after the last one, and after every `steps` steps."""

    seconds: float = math.inf
    steps: int | None = None


class SaveCheckpoints(TrainerCallback):
    """Requests checkpoints by time, since optimizer steps differ in length, and by their number if that is set."""

    def __init__(self, rhythm: Rhythm) -> None:
        self._rhythm = rhythm
        self._last = time.monotonic()

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._last = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        faults.kill_point("train.after_step")
        due = bool(self._rhythm.steps) and state.global_step % self._rhythm.steps == 0
        if due or broadcast_from_main(
            lambda: time.monotonic() - self._last >= self._rhythm.seconds
        ):  # all processes write together
            control.should_save = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._last = time.monotonic()


_MAX_BAD_STEPS = 3  # in a row


class PackDataset(Dataset[Batch]):
    """The packs of a plan in training order; each is built when it is read."""

    def __init__(self, samples: Sequence[Sample], plan: Sequence[Sequence[Pack]], share: bool = True) -> None:
        self.samples, self.share = samples, share
        self.packs = [pack for step in plan for pack in step]

    def __len__(self) -> int:
        return len(self.packs)

    def __getitem__(self, index: int) -> Batch:
        return build_pack([self.samples[sample] for sample in self.packs[index]], self.share)


class PackedTrainer(KeepsMasterWeights, InANight):
    """Trains on packs, one per micro-batch; the objective says what a pack costs, and by which number its loss is divided.

    A micro-batch whose loss is not finite contributes nothing, and an optimizer step whose gradient is not finite is not taken;
    both are counted, and too many in a row end the run. A run that `limits` end keeps its weights; with `validation`, every run
    keeps those of the step with the lowest validation loss.

    Args:
        objective: what is minimised.
        rhythm: when to write checkpoints.
        on_step: called after each optimizer step with its number, the number of steps, and its metrics.
        validation: packs whose loss is computed after each optimizer step.
        limits: when to end early.
        stretch: the part of the night's training that this is.
    """

    loss_is_scaled_for_ga = True  # by compute_loss, over the whole accumulation window
    model: Any  # these are there while it trains, which their declared types do not know
    optimizer: Any
    lr_scheduler: Any

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        dataset: PackDataset,
        checkpoints: Checkpoints,
        rhythm: Rhythm,
        on_step: Callable[[dict[str, float]], None] = lambda metrics: None,
        *,
        objective: Objective,
        validation: PackDataset | None = None,
        limits: Limits = Limits(),  # noqa: B008  # a tuple
        stretch: Stretch = Stretch(),  # noqa: B008  # a tuple
    ) -> None:
        install_scoring_head(model)
        if objective.learns_entropy:
            learn_entropy(model)
        callbacks: list[TrainerCallback] = [SaveCheckpoints(rhythm)]
        super().__init__(model=model, args=args, train_dataset=dataset, data_collator=_only, callbacks=callbacks)
        self.remove_callback(PrinterCallback)
        self.join(stretch)
        if validation is not None and self.is_deepspeed_enabled:
            message = "DeepSpeed's weights cannot be kept to go back to"
            raise ConfigError(message, "train.validation", "set it to 0, or use fsdp2.yaml")
        self.objective = objective
        self._checkpoints, self._on_step = checkpoints, on_step
        self._validation, self._limits = validation, limits
        self._accumulator = Accumulator()
        self._bad_steps = 0
        self._best: dict[str, Tensor] = {}
        self.stopped: str | None = None

    # ---- the loss

    def _get_num_items_in_batch(self, batch_samples: list[Batch], device: torch.device) -> Tensor:
        """Return the size of the whole accumulation window, on all processes."""
        size = torch.tensor(sum(self.objective.size(batch) for batch in batch_samples), device=device)
        return self.accelerator.gather(size).sum()  # type: ignore[union-attr]

    def compute_loss(self, model: Any, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Any = None) -> Tensor:
        scores = score_pack(model, inputs)
        if not len(inputs["score"]):
            return _nothing(scores)
        total, parts = self.objective.summed(scores, inputs)
        if scores.balance is not None:
            total = total + scores.balance * self.objective.size(
                inputs
            )  # a mean over the step's packs, each by its part of the step
        self._accumulator.add(parts, trained_tokens(self.objective, inputs), inputs["input_ids"].numel())
        loss = total / num_items_in_batch * self.accelerator.num_processes
        if torch.isfinite(loss):
            return loss
        self._accumulator.nonfinite += 1
        return _nothing(scores)

    @torch.no_grad()
    def _validate(self, packs: PackDataset) -> float:
        """Return the loss of the validation rows under the present weights."""
        self.model.eval()
        total, size = 0.0, 0.0
        for index in range(len(packs)):
            inputs: Any = self._prepare_inputs(packs[index])  # type: ignore[arg-type]
            scores = score_pack(self.model_wrapped, inputs)  # type: ignore[arg-type]
            total += float(self.objective.summed(scores, inputs)[0])
            size += self.objective.size(inputs)
        return total / size

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        norm: Any = super()._clip_grad_norm(model)
        if not isinstance(norm, Tensor):  # DeepSpeed's engine clips by itself as it steps, and gives a number or nothing
            return norm
        if not torch.isfinite(norm):
            self._accumulator.nonfinite += 1
            model.zero_grad(set_to_none=True)  # the optimizer then has nothing to step on
        self._bad_steps = self._bad_steps + 1 if self._accumulator.nonfinite else 0
        if self._bad_steps == _MAX_BAD_STEPS:
            raise TrainingError(
                f"the loss or its gradient was not finite in {_MAX_BAD_STEPS} optimizer steps in a row",
                f"optimizer step {self.state.global_step + 1}",
                "lower train.learning_rate or train.max_grad_norm, or use float32",
            )
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the step's metrics, without those that cannot be computed; then decide whether training stops."""
        is_update = "loss" in logs
        if is_update:
            logs = logs | self.objective.finish(self._accumulator.drain(_joined))
            if self._validation is not None:
                logs["validation_loss"] = self._validate(self._validation)
                self._accumulator = Accumulator()  # the next step's time begins here
            logs = {name: value for name, value in logs.items() if math.isfinite(value)}
        super().log(logs, start_time)
        if is_update:
            self._on_step({"step": self.state.global_step, "of": self.state.max_steps} | logs)
            self._consider_stopping()

    @property
    def steps(self) -> list[dict[str, float]]:
        """The metrics of every optimizer step, including those before a resume."""
        return [entry for entry in self.state.log_history if "loss" in entry]

    def _consider_stopping(self) -> None:
        if best_step(self.steps) == len(self.steps):
            self._best = {name: value.detach().clone() for name, value in trainable(self.model)}
        self.stopped = stop_reason(self.steps, self._limits)
        if self.stopped:
            self.control.should_training_stop = True

    def train(self, *args: Any, **kwargs: Any) -> Any:
        result = super().train(*args, **kwargs)
        with torch.no_grad():
            for name, parameter in trainable(self.model):
                parameter.copy_(self._best.get(name, parameter))
        return result

    # ---- checkpoints: the loop's own are neither atomic nor free of pickle

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        if self.stopped:
            return  # a run resumed from this checkpoint would train on; resumed from the one before, it stops here again
        if self.is_deepspeed_enabled:
            return  # DeepSpeed keeps the optimizer's state in its own buffers, which it can only write as pickles

        def fill(directory: Path) -> None:
            barrier()  # until the main process has made the directory
            save_state(directory, self.model, self.optimizer, self.lr_scheduler, self._best)
            barrier()  # until all processes have written their parts

        def fill_all(directory: Path) -> None:
            fill(directory)
            self.state.save_to_json(str(directory / "trainer_state.json"))

        if self.accelerator.is_main_process:
            self._checkpoints.save(self.state.global_step, fill_all)
        else:
            fill(self._checkpoints.staging)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_weights(Path(resume_from_checkpoint), self.model)
        self._best = load_best(Path(resume_from_checkpoint), self.model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_optimizer(Path(checkpoint), self.model, self.optimizer, self.lr_scheduler)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_random(Path(checkpoint))


def _nothing(scores: Scores) -> Tensor:
    """Return 0, with a gradient of 0 for every parameter that the scores depend on, since other processes wait for it."""
    parts = (scores.logprobs, *(part for part in (scores.top, scores.values) if part is not None))
    return torch.stack([(part.nan_to_num() * 0).sum() for part in parts]).sum()


def _joined(parts: list[Any]) -> list[Any]:
    """Return the lists of all processes as one list."""
    return [part for parts in all_gather(parts) for part in parts]


def _only(batch: list[Batch]) -> Batch:
    return batch[0]
