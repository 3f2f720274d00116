"""DPO on pairs that exist only as text, through TRL's DPOTrainer.

Log-probs are taken at temperature 1; the reference is the policy that the night starts from; dropout is off. One pair is a
micro-batch, so that the likelihood of TRL's `sft` term is a mean over each pair's own tokens, and an optimizer step the mean over
its pairs, as they are for recorded pairs. A run that is killed starts again.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast, PrinterCallback, TrainingArguments
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DataCollatorForPreference, DPOTrainer

from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.training import Dpo, Train
from clawpipe.errors import ConfigError, TrainingError
from clawpipe.learn.training.checkpoint.state import Movement, commit
from clawpipe.learn.training.data.text_pairs import load_text_pairs
from clawpipe.learn.training.losses.batch import Part
from clawpipe.learn.training.model.build import build_model, training_arguments
from clawpipe.learn.training.model.reference import load_reference, set_adapter_weights
from clawpipe.learn.training.request import Reference, TrainRequest
from clawpipe.learn.training.trainers.accumulator import Accumulator
from clawpipe.learn.training.trainers.optimizer import KeepsMasterWeights
from clawpipe.learn.training.trainers.schedule import InANight, Stretch, stretch_of
from clawpipe.model.policy.text import TextPair, renderers
from clawpipe.model.policy.vocabulary import load_tokenizer

Steps = list[dict[str, float]]
OnStep = Callable[[dict[str, float]], None]
_REFERENCE = "ref"  # TRL's name for the frozen copy of an adapter that training starts from
_TAKEN_OVER = (
    "output_dir",
    "seed",
    "use_cpu",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "adam_beta1",
    "adam_beta2",
    "weight_decay",
    "optim",
    "max_grad_norm",
    "activation_checkpointing",
    "activation_checkpointing_kwargs",
    "logging_steps",
    "logging_nan_inf_filter",
    "save_strategy",
    "remove_unused_columns",
    "dataloader_pin_memory",
    "report_to",
    "disable_tqdm",
)
_NAMES = {
    "rewards/chosen": "rewards_chosen",
    "rewards/rejected": "rewards_rejected",
    "rewards/margins": "margin",
    "rewards/accuracies": "accuracy",
    "logps/chosen": "lp_chosen",
    "logps/rejected": "lp_rejected",
} | {name: name for name in ("loss", "grad_norm", "learning_rate", "entropy", "epoch", "step")}


def train_on_text(request: TrainRequest, work: Path, on_step: OnStep) -> None:
    """Train on the request's text-only pairs and commit the outcome directory at once, complete.

    Raises:
        ConfigError: the request does not say how to render them.
        DataError: no pair is left to train on.
        TrainingError: a loss or gradient was not finite.
    """
    rendering, config = request.rendering, request.config
    if rendering is None:
        raise ConfigError("pairs of text need an environment, whose preamble and tools they are rendered with", "rendering")
    opening, tokenizer = rendering.opening, load_tokenizer(Path(request.base))
    renderer_of = renderers(tokenizer, rendering.tool_call_format, opening.specs())
    pairs, filtered = load_text_pairs(request.samples, renderer_of, opening.messages())
    model = build_model(request)
    reference = _reference(model, request)
    movement = Movement(model)
    tokens = sum(len(pair["chosen_ids"]) + len(pair["rejected_ids"]) for pair in pairs)
    arguments = training_arguments(request, work, pairs_per_step(config, len(pairs), tokens))
    trained = train_text_preferences(
        model, tokenizer, pairs, config, arguments, on_step, reference=reference, stretch=stretch_of(request)
    )
    summary = {"samples": len(pairs), "held_out": 0, "filtered": filtered, "stopped": None}
    commit(request, model, trained.steps, summary | {"moved": movement.relative(model)}, trained.optimizer)


def _reference(model: Any, request: TrainRequest) -> Reference | PreTrainedModel | None:
    """Return the reference where it is not what training starts from: a whole model, or what the adapter's model will play."""
    if request.reference is None or isinstance(model, PeftModel):
        return request.reference
    return load_reference(request.reference, request, next(model.parameters()).device)


def pairs_per_step(config: Train, pairs: int, tokens: int) -> int:
    """Return the pairs per optimizer step, for `pairs` with `tokens` trained tokens; the last step of an epoch may have fewer."""
    return math.ceil(pairs / min(config.steps_for(pairs, tokens), pairs))


def train_text_preferences(
    model: PeftModel | PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    pairs: Sequence[TextPair],
    config: Train,
    arguments: TrainingArguments,
    on_step: OnStep,
    *,
    reference: Reference | PreTrainedModel | None = None,
    stretch: Stretch = Stretch(),  # noqa: B008  # a tuple
) -> TextPreferenceTrainer:
    """Train `model` in place; return the trainer, with the metrics of each step under the names of `preference_loss`.

    Args:
        model: with a trainable adapter on a frozen base, or trainable as a whole.
        arguments: of the loop over recorded pairs, one pair per micro-batch and `pairs_per_step` micro-batches per optimizer step.
        on_step: called after each optimizer step with its number, the number of steps, and its metrics.
        reference: the reference, of an adapter's model its directories; None: `model` as it is now.
        stretch: the part of the night's training that this is.

    Raises:
        TrainingError: a loss or gradient was not finite.
    """
    trainer = TextPreferenceTrainer(
        model=model,
        ref_model=None if isinstance(model, PeftModel) else reference or copy.deepcopy(model),
        args=_dpo_config(config, arguments, len(pairs)),
        data_collator=_Collator(pad_token_id=0),
        train_dataset=Dataset.from_list([dict(pair) for pair in pairs]),
        processing_class=tokenizer,
        on_step=on_step,
    )
    trainer.join(stretch)
    if isinstance(model, PeftModel) and isinstance(reference, Reference):
        _play(model, reference)
    trainer.train()
    if isinstance(model, PeftModel) and _REFERENCE in model.peft_config:
        model.delete_adapter(_REFERENCE)
    return trainer


def _play(model: PeftModel, reference: Reference) -> None:
    """Give TRL's copy of the adapter the reference's weights; without that copy, TRL's reference is the base."""
    if reference.adapter is None:
        model.delete_adapter(_REFERENCE)
    else:
        set_adapter_weights(model, reference.adapter, _REFERENCE)


def _dpo_config(config: Train, arguments: TrainingArguments, pairs: int) -> DPOConfig:
    planned = config.epochs * math.ceil(pairs / arguments.gradient_accumulation_steps)
    return DPOConfig(
        **{name: getattr(arguments, name) for name in _TAKEN_OVER},
        **_loss(config.dpo),
        num_train_epochs=config.epochs,
        max_steps=min(config.max_steps or planned, planned),  # alone it would go on for more epochs than asked for
        train_sampling_strategy="random",
        max_length=None,  # a pair is trained whole or not at all
        bf16=False,  # the model's own dtype, not autocast
    )


def _loss(dpo: Dpo) -> Options:
    """Return the settings for TRL, whose variants have the same names and formulas.

    Its `sigmoid` ignores label smoothing without a word; its `aot` has it, and of one pair per micro-batch is the same loss.

    Raises:
        ConfigError: TRL has no such loss.
    """
    if dpo.label_smoothing and dpo.variant != "sigmoid":
        message = f"TRL, which trains pairs that are text only, smooths no labels of {dpo.variant}"
        raise ConfigError(message, "train.dpo.label_smoothing", "set it to 0, or train.dpo.variant to sigmoid")
    variant = "aot" if dpo.label_smoothing else dpo.variant
    terms = {variant: 1.0, "sft": dpo.nll_coef} if dpo.nll_coef else {variant: 1.0}
    weights = {"loss_type": list(terms), "loss_weights": list(terms.values())}
    return weights | {"beta": dpo.beta, "label_smoothing": dpo.label_smoothing}


class _Collator(DataCollatorForPreference):
    def torch_call(self, examples: list[TextPair]) -> dict[str, Any]:
        weights = torch.tensor([example["weight"] for example in examples])
        return super().torch_call([dict(example) for example in examples]) | {"weights": weights}


class TextPreferenceTrainer(KeepsMasterWeights, InANight, DPOTrainer):
    """TRL's trainer on rows of token ids; it reports as `clawpipe.learn.training.trainers.base.PackedTrainer` does."""

    optimizer: Any  # which the declared types do not know while it trains

    def __init__(self, *arguments: Any, on_step: OnStep, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.remove_callback(PrinterCallback)
        self.steps: Steps = []
        self._on_step, self._accumulator = on_step, Accumulator()

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset

    def _send_telemetry(self) -> None:
        """Send no telemetry: nothing leaves this machine."""

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *rest: Any, **options: Any) -> Tensor:
        weights = inputs.pop("weights")
        self._accumulator.add([Part({}, 1)], int(inputs["completion_mask"].sum()), int(inputs["attention_mask"].sum()))
        return super().compute_loss(model, inputs, *rest, **options) * weights.mean()  # one pair, one weight

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        if "loss" not in logs:
            return
        entry = self.state.log_history[-1]
        if not (math.isfinite(entry["loss"]) and math.isfinite(entry["grad_norm"])):
            raise TrainingError(
                "the loss or its gradient is not finite",
                f"optimizer step {self.state.global_step}",
                "lower train.learning_rate or train.max_grad_norm, or use float32",
            )
        self.steps.append({ours: entry[theirs] for theirs, ours in _NAMES.items()} | self._accumulator.drain())
        self._on_step({"of": self.state.max_steps} | self.steps[-1])
