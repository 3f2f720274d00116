"""Adapters that a service has trained: from its names and files to peft's, checked against the base."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from clawpipe.core.config.training import Lora
from clawpipe.errors import DataError
from clawpipe.learn.training.model.adapter import attach_trainable, write_adapter

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_PREFIX = "base_model.model."


def convert_adapter(downloaded: Path, directory: Path, base: str, base_digest: str, lora: Lora) -> None:
    """Write an adapter's files as a training on this machine writes them.

    Args:
        downloaded: directory of the service's adapter_model.safetensors and adapter_config.json.
        base: directory of the base's config; its weights are not read.

    Raises:
        DataError: it is no adapter of this base with these settings.
        TrainingError: a weight is not finite.
    """
    expected = _expected(base, lora)
    found = {_named(name): tensor.float().contiguous() for name, tensor in load_file(downloaded / WEIGHTS).items()}
    _require_same(_shapes(found), _shapes(get_peft_model_state_dict(expected, save_embedding_layers=False)))
    theirs = json.loads((downloaded / CONFIG).read_bytes())
    settings = expected.peft_config["default"].to_dict() | {name: theirs[name] for name in ("lora_alpha", "r") if name in theirs}
    write_adapter(found, settings, directory, base_digest)


def movement(adapter: Path, before: str | None) -> float | None:
    """Return the relative norm of an adapter's change from the one in `before`. From a new one: 0 if it has no effect yet, else
    None, since nobody here knows how it began."""
    now = load_file(adapter / WEIGHTS)
    if before is None:
        return None if any(tensor.any() for name, tensor in now.items() if "lora_B" in name) else 0.0
    then = load_file(Path(before) / WEIGHTS)
    changed = sum(float((now[name].double() - then[name].double()).square().sum()) for name in now)
    return (changed / sum(float(tensor.double().square().sum()) for tensor in then.values())) ** 0.5


def _expected(base: str, lora: Lora) -> Any:
    """Return the base with a new adapter, without memory for any weight."""
    with torch.device("meta"):
        config = AutoConfig.from_pretrained(base, trust_remote_code=False)
        model: PeftModel = attach_trainable(AutoModelForCausalLM.from_config(config), lora)
    return model


def _shapes(tensors: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _named(name: str) -> str:
    """Return peft's name of a tensor, which a service may write without the prefix of peft's wrapper."""
    return name if name.startswith(_PREFIX) else _PREFIX + name


def _require_same(found: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]) -> None:
    wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    if wrong:
        what = f"{len(wrong)} tensors are not those of an adapter of this base, such as {wrong[0]}"
        raise DataError(what, "train.backend.model", "name there the model that model.base is, with the rank of train.lora")
