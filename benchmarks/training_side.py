"""The two sides of the training benchmark, and clawpipe's implementation of one.

A side does one optimizer step over all rows of a workload at a time, by one call of the `train` method that both inherit
from transformers' Trainer. So collation, the optimizer and logging are timed, and loading is not.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from pydantic import BaseModel
from torch import Tensor, nn
from training_memory import keep_freed_memory
from transformers import Trainer

from clawpipe.core.config.quantization import Quantization
from clawpipe.core.config.training import Dpo, Lora, Train
from clawpipe.learn.children.memory import lower_mmap_threshold
from clawpipe.learn.training.checkpoint.files import Checkpoints
from clawpipe.learn.training.data.packing import build_pack
from clawpipe.learn.training.model.build import build_model, training_arguments
from clawpipe.learn.training.request import TrainRequest
from clawpipe.learn.training.run import job_of
from clawpipe.learn.training.trainers.base import PackDataset, Rhythm

_RATE = 1e-6  # small, because every repeat trains on and should meet nearly the same policy
BETA = Dpo().beta


class Workload(BaseModel):
    """Rows, the model, and how each side batches them.

    Attributes:
        samples, scores, base: files, and the model's directory.
        pack_tokens: clawpipe's tokens per pack.
        batch: TRL's rows per micro-batch; pairs for dpo.
        generation: number of TRL's micro-batches that are padded to the same length: its `steps_per_generation`.
        group: TRL's `num_generations`, which divides batch * generation.
    """

    name: str
    method: Literal["grpo", "dpo"] = "grpo"
    samples: Path
    scores: tuple[Path, ...] = ()
    base: Path
    pack_tokens: int
    gradient_checkpointing: bool = False
    batch: int = 1
    generation: int = 1
    group: int = 2
    threads: int
    device: str = "cpu"
    dtype: str = "float32"
    adapter: Literal["lora", "full"] = "lora"
    lora: Lora = Lora()
    quantization: Quantization = "none"


class Update(NamedTuple):
    seconds: float
    loss: float
    grad_norm: float


class Side:
    """One side, ready to train."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self._directory = workload, tempfile.TemporaryDirectory()
        self.work = Path(self._directory.name)
        self.request = request_of(workload, self.work)
        self.job = job_of(self.request)
        self.rows = list(self.job.rows)
        self.model = build_model(self.request)
        _move_adapter(self.model)
        self._trainer = self._make_trainer()

    @property
    def trained_tokens(self) -> int:
        return sum(len(row.trained) for row in self.rows)

    def update(self) -> Update:
        """Do one optimizer step over all rows."""
        with self._conditions():
            trainer, self._trainer = self._trainer, None
            trainer = trainer or self._make_trainer()
            start = time.perf_counter()
            trainer.train()
            seconds = time.perf_counter() - start
        logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
        return Update(seconds, logged["loss"], logged["grad_norm"])

    def _make_trainer(self) -> Trainer:
        raise NotImplementedError

    @contextmanager
    def _conditions(self) -> Iterator[None]:
        yield


class Clawpipe(Side):
    """clawpipe's side, run like `python -m clawpipe.learn.training`, with deterministic algorithms and its malloc setting."""

    @contextmanager
    def _conditions(self) -> Iterator[None]:
        lower_mmap_threshold()
        try:
            yield
        finally:
            keep_freed_memory()

    def packs(self) -> list[dict[str, Tensor]]:
        return [build_pack([self.rows[index] for index in pack]) for pack in self._plan()[0]]

    def _plan(self) -> list[list[list[int]]]:
        config = self.request.config
        return self.job.plan(self.rows, config.pack_tokens, config.optimizer_steps or 1, self.request.seed, config.epochs)

    def _make_trainer(self) -> Trainer:
        plan = self._plan()
        arguments = training_arguments(self.request, self.work, len(plan[0]))
        rows, checkpoints = PackDataset(self.rows, plan), Checkpoints(self.work, {})
        return self.job.trainer(self.model, arguments, rows, checkpoints, Rhythm(), objective=self.job.objective)


def request_of(workload: Workload, work: Path) -> TrainRequest:
    config = Train(
        method=workload.method,
        learning_rate=_RATE,
        optimizer_steps=1,
        pack_tokens=workload.pack_tokens,
        gradient_checkpointing=workload.gradient_checkpointing,
        adapter=workload.adapter,
        lora=workload.lora,
        dpo=Dpo(beta=BETA, nll_coef=0.0),
    )
    return TrainRequest(
        samples=(str(workload.samples),),
        token_scores=tuple(map(str, workload.scores)),
        base=str(workload.base),
        base_digest="benchmark",
        dtype=workload.dtype,
        quantization=workload.quantization,
        config=config,
        temperature=1.0,
        seed=0,
        device=workload.device,
        threads=workload.threads,
        output=str(work / "outcome"),
    )


def _move_adapter(model: nn.Module) -> None:
    """Change the fresh adapter: its A matrices would get no gradient, and a comparison would not cover them."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.02, generator=generator)
