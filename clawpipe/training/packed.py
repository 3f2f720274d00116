"""transformers' training loop over packs of rows: what every trainer of ours has in common, whatever its loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from clawpipe.errors import TrainingError
from clawpipe.training.callbacks import SaveByTime
from clawpipe.training.checkpoints import Checkpoints
from clawpipe.training.head import Scores, install_scoring_head
from clawpipe.training.meter import Meter
from clawpipe.training.packing import Pack, build_pack
from clawpipe.training.samples import Sample
from clawpipe.training.state import load_optimizer, load_random, load_weights, save_state

Batch = dict[str, Tensor]
Metrics = dict[str, Tensor]
_MAX_BAD_UPDATES = 3  # in a row


class PackDataset(Dataset):
    """Packs in the order in which they are trained, built when they are asked for."""

    def __init__(self, samples: Sequence[Sample], plan: Sequence[Sequence[Pack]]) -> None:
        self.samples = samples
        self.packs = [pack for update in plan for pack in update]

    def __len__(self) -> int:
        return len(self.packs)

    def __getitem__(self, index: int) -> Batch:
        return build_pack([self.samples[sample] for sample in self.packs[index]])


class PackedTrainer(Trainer):
    """Trains on packs, one a micro-batch; a subclass says what the loss of a pack is, and what it is divided by.

    A micro-batch whose loss is not finite contributes nothing, an update whose gradient is not finite is not made; both
    are counted, and too many in a row end the run.

    Args:
        on_step: called after each update with its number, how many there are, and its metrics.
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
        checkpoint_seconds: float,
        on_step: Callable[[dict[str, float]], None] = lambda facts: None,
    ) -> None:
        install_scoring_head(model)
        callbacks: list[TrainerCallback] = [SaveByTime(checkpoint_seconds)]
        super().__init__(model=model, args=args, train_dataset=dataset, data_collator=_only, callbacks=callbacks)
        self.remove_callback(PrinterCallback)
        self._checkpoints, self._on_step = checkpoints, on_step
        self._meter = Meter()
        self._bad_updates = 0

    # ---- the loss

    def _size(self, batch: Batch) -> float:
        """What a pack adds to the number that an update's loss is divided by: its trained tokens, rows or pairs."""
        raise NotImplementedError

    def _summed_loss(self, scores: Scores, inputs: Batch) -> tuple[Tensor, Metrics]:
        """Loss of a pack that is not empty, summed, and its metrics."""
        raise NotImplementedError

    def _get_num_items_in_batch(self, batch_samples: list[Batch], device: torch.device) -> Tensor:
        """Size of the whole accumulation window, on all processes."""
        size = torch.tensor(sum(self._size(batch) for batch in batch_samples), device=device)
        return self.accelerator.gather(size).sum()  # type: ignore[union-attr]

    def compute_loss(self, model, inputs: Batch, return_outputs=False, num_items_in_batch: Any = None) -> Tensor:
        scores = self._score(model, inputs)
        if not len(inputs["score"]):
            return (scores.logprobs * 0).sum()  # an empty pack stays in the graph, for the sake of other processes
        total, metrics = self._summed_loss(scores, inputs)
        self._meter.add(metrics, len(inputs["score"]), inputs["input_ids"].numel())
        loss = total / num_items_in_batch * self.accelerator.num_processes
        if torch.isfinite(loss):
            return loss
        self._meter.nonfinite += 1
        return (scores.logprobs.nan_to_num() * 0).sum()

    def _score(self, model: nn.Module, inputs: Batch) -> Scores:
        visible = inputs["attention_mask"]
        additive = torch.full_like(visible, -torch.inf, dtype=self.model.dtype).masked_fill_(visible, 0.0)
        return model(
            input_ids=inputs["input_ids"],
            position_ids=inputs["position_ids"],
            attention_mask=additive,
            score=(inputs["score_index"], inputs["targets"], inputs["temperatures"]),
        )

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        norm: Any = super()._clip_grad_norm(model)
        if not torch.isfinite(norm):
            self._meter.nonfinite += 1
            model.zero_grad(set_to_none=True)  # the optimiser then has nothing to step on
        self._bad_updates = self._bad_updates + 1 if self._meter.nonfinite else 0
        if self._bad_updates == _MAX_BAD_UPDATES:
            raise TrainingError(
                f"the loss or its gradient was not finite in {_MAX_BAD_UPDATES} updates in a row",
                f"update {self.state.global_step + 1}",
                "lower train.learning_rate or train.max_grad_norm, or use float32",
            )
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the update's own metrics; what cannot be computed is absent."""
        is_update = "loss" in logs
        if is_update:
            logs = {name: value for name, value in (logs | self._meter.drain()).items() if math.isfinite(value)}
        super().log(logs, start_time)
        if is_update:
            self._on_step({"step": self.state.global_step, "of": self.state.max_steps} | logs)

    # ---- checkpoints: the loop's own are neither atomic nor free of pickle

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        def fill(directory: Path) -> None:
            save_state(directory, self.model, self.optimizer, self.lr_scheduler)
            self.state.save_to_json(str(directory / "trainer_state.json"))

        self._checkpoints.save(self.state.global_step, fill)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_weights(Path(resume_from_checkpoint), self.model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_optimizer(Path(checkpoint), self.model, self.optimizer, self.lr_scheduler)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_random(Path(checkpoint))


def _only(batch: list[Batch]) -> Batch:
    return batch[0]
