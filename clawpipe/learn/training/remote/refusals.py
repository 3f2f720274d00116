"""Settings that no service has a counterpart for."""

from __future__ import annotations

from collections.abc import Iterator

from clawpipe.core.config.quantization import Quantization
from clawpipe.core.config.training import Lora, Train
from clawpipe.learn.training.backends import Refusal
from clawpipe.learn.training.methods import weights_of


def of_services(train: Train, temperature: float, quantization: Quantization) -> Iterator[Refusal]:
    """Yield what services do not compute."""
    if temperature != 1:
        yield Refusal("its log-probs are those at temperature 1", "rollouts.temperature=1")
    if quantization != "none":
        yield Refusal("its base is not quantized", "model.quantization=none")
    if weights_of(train)[1] and train.opd.form == "topk":
        yield Refusal("it gives the log-prob of the sampled token alone", "train.opd.form=token")
    if train.loss.entropy_coef:
        yield Refusal("it gives no entropy", "train.loss.entropy_coef=0")
    if train.validation:
        yield Refusal("it goes back to no earlier step", "train.validation=0")


def of_adapters(lora: Lora) -> Iterator[Refusal]:
    """Yield what their adapters are not."""
    if lora.dropout:
        yield Refusal("its adapters have no dropout", "train.lora.dropout=0")
    if lora.variant != "lora":
        yield Refusal(f"it has no {lora.variant}", "train.lora.variant=lora")
    if lora.target_modules != "all-linear":
        yield Refusal("its adapters are on all linear layers", "train.lora.target_modules=all-linear")
