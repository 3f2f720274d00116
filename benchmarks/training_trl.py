"""TRL's side of the training benchmark: the same model, rows, loss and optimizer as clawpipe's.

GRPOTrainer ignores recorded log-probs (except with vLLM), so it is adapted: a `rollout_func` returns the stored tokens, and its
output gets the stored log-probs as the old policy's, and the stored advantages per token. The loss is then the same: dapo is
a mean over the tokens of a step, and `delta` is the dual clip. DPOTrainer gets token ids and reference log-probs instead of
text. Every setting is that of clawpipe's side, except how rows are batched, which the workload says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from training_side import BETA, Side, Workload
from transformers import PrinterCallback, Trainer
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from clawpipe.core.basics.json_types import Options
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.model.build import training_arguments
from clawpipe.model.policy.vocabulary import load_tokenizer


class Trl(Side):
    """TRL on the same rows, without deterministic algorithms, which it does not use."""

    @contextmanager
    def _conditions(self) -> Iterator[None]:
        torch.use_deterministic_algorithms(False)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(True)

    def _make_trainer(self) -> Trainer:
        make = _dpo_trainer if self.workload.method == "dpo" else _grpo_trainer
        trainer = make(self.workload, self.model, self.rows, self._arguments())
        trainer.remove_callback(PrinterCallback)
        return trainer

    def _arguments(self) -> Options:
        """Return the arguments that clawpipe sets as well."""
        ours = training_arguments(self.request, self.work, 1)
        names = ("output_dir", "use_cpu", "learning_rate", "lr_scheduler_type", "optim", "max_grad_norm", "logging_steps")
        same = {name: getattr(ours, name) for name in names}
        plain = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "dataloader_pin_memory": False, "bf16": False}
        checkpointing = {"gradient_checkpointing": self.workload.gradient_checkpointing}
        units = len(self.rows) // (2 if self.workload.method == "dpo" else 1)
        batches = {"per_device_train_batch_size": self.workload.batch, "max_steps": 1}
        batches["gradient_accumulation_steps"] = units // self.workload.batch
        return same | plain | checkpointing | batches


# ---- GRPOTrainer


class _StoredGRPO(GRPOTrainer):
    """A GRPOTrainer that trains on stored rows with their log-probs and advantages per token."""

    stored: Sequence[Sample]
    group: int
    _calls: Counter[str]

    def _generate_and_score_completions(self, inputs: list[Options]) -> Options:
        self._calls, seen = Counter(), Counter()
        out: Options = super()._generate_and_score_completions(inputs)  # pyright: ignore[reportAssignmentType]
        out["old_per_token_logps"] = torch.nan_to_num(out["sampling_per_token_logps"])
        out["advantages"] = torch.zeros_like(out["old_per_token_logps"])
        for place, prompt in enumerate(example["prompt"] for example in inputs):
            row = self._row(prompt, seen)
            out["advantages"][place, row.trained - row.trained[0]] = torch.from_numpy(row.streams["advantages"])
        return out

    @staticmethod
    def rollouts(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        """Return stored rows as TRL's `rollout_func`."""
        rows = [trainer._row(prompt, trainer._calls) for prompt in prompts]
        masks, logprobs = [_spread(row, 1) for row in rows], [_spread(row, row.streams["behaviour"]) for row in rows]
        return {
            "prompt_ids": [row.token_ids[: row.trained[0]].tolist() for row in rows],
            "completion_ids": [row.token_ids[row.trained[0] : row.trained[-1] + 1].tolist() for row in rows],
            "env_mask": [mask.int().tolist() for mask in masks],
            "logprobs": [stream.tolist() for stream in logprobs],
        }

    def _row(self, prompt: str, seen: Counter[str]) -> Sample:
        """Return the next row of a group; the prompt is the number of the group."""
        seen[prompt] += 1
        return self.stored[int(prompt) * self.group + seen[prompt] - 1]


def _grpo_trainer(workload: Workload, model: Any, rows: Sequence[Sample], arguments: Options) -> Trainer:
    settings = GRPOConfig(
        **arguments,
        steps_per_generation=workload.generation,
        num_generations=workload.group,
        max_completion_length=max(len(row.token_ids) for row in rows),
        temperature=rows[0].temperature,
        loss_type="dapo",
        epsilon=0.2,
        epsilon_high=0.28,
        delta=3.0,
        beta=0.0,
        shuffle_dataset=False,
    )
    trainer = _StoredGRPO(
        model=model,
        reward_funcs=lambda prompts, **_: [0.0] * len(prompts),  # advantages are in the rows
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": [str(group) for group in range(len(rows) // workload.group)]}),
        processing_class=load_tokenizer(workload.base),
        rollout_func=_StoredGRPO.rollouts,
    )
    trainer.stored, trainer.group = rows, workload.group
    return trainer


def _spread(row: Sample, values: Any) -> Tensor:
    """Spread a stream of the trained tokens over the completion's tokens."""
    out = torch.zeros(int(row.trained[-1] - row.trained[0]) + 1)
    out[row.trained - row.trained[0]] = torch.as_tensor(values, dtype=torch.float32)
    return out


# ---- DPOTrainer


class _StoredDPO(DPOTrainer):
    """A DPOTrainer on token ids; the base class would make them from text."""

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return dataset


def _dpo_trainer(workload: Workload, model: Any, rows: Sequence[Sample], arguments: Options) -> Trainer:
    trainer = _StoredDPO(
        model=model,
        args=DPOConfig(**arguments, beta=BETA, max_length=None),
        train_dataset=Dataset.from_list([_pair(*pair) for pair in zip(rows[0::2], rows[1::2], strict=True)]),
        processing_class=load_tokenizer(workload.base),
    )
    trainer.precompute_ref_logps = True  # they are in the rows, as for clawpipe
    model.delete_adapter("ref")  # a copy of the adapter, only needed to compute them
    return trainer


def _pair(chosen: Sample, rejected: Sample) -> Options:
    start = chosen.trained[0]
    pair: Options = {"prompt_ids": chosen.token_ids[:start].tolist()}
    for name, side in (("chosen", chosen), ("rejected", rejected)):
        pair[f"{name}_ids"] = side.token_ids[start : side.trained[-1] + 1].tolist()
        pair[f"ref_{name}_logps"] = float(side.streams["reference"].sum())
    return pair
