"""The trained weights: a LoRA adapter on a base model, or all weights; and the adapter's files, decided by the weights alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from peft.tuners.tuners_utils import (
    _maybe_include_all_linear_layers,  # pyright: ignore[reportPrivateUsage]
    check_target_module_exists,
)
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.config.training import Lora
from clawpipe.errors import ConfigError
from clawpipe.learn.training.process.collectives import gather_on_main
from clawpipe.model.policy.merged import merge_adapter
from clawpipe.model.policy.weights import finite, written_tensors


def attach_trainable(model: PreTrainedModel, config: Lora, init_adapter: str | None = None) -> PeftModel:
    """Put a new adapter, or the one in `init_adapter`, on `model`. The base's weights are frozen.

    Raises:
        ConfigError: the model has no such modules, or the adapter in `init_adapter` is on others, or has another rank, alpha or
            variant than the settings.
    """
    settings = _settings(config)
    if init_adapter is None:
        return _fresh(model, settings)
    found: Any = PeftConfig.from_pretrained(init_adapter)
    _require_same(model, found, settings)
    found.lora_dropout = config.dropout  # which only training reads
    return PeftModel.from_pretrained(model, init_adapter, config=found, is_trainable=True, use_safetensors=True)


def _settings(config: Lora) -> LoraConfig:
    targets = config.target_modules if isinstance(config.target_modules, str) else list(config.target_modules)
    return LoraConfig(**_shape(config), lora_dropout=config.dropout, target_modules=targets, task_type="CAUSAL_LM")


def _fresh(model: PreTrainedModel, settings: LoraConfig) -> PeftModel:
    try:
        return get_peft_model(model, settings)
    except ValueError as error:  # of names that no module has, or of modules that the family's layers do not use as peft would
        fix = "name others of the model's linear modules, or set train.adapter to full"
        raise ConfigError(f"no adapter can be put there: {error}", "train.lora.target_modules", fix) from error


def _require_same(model: PreTrainedModel, found: Any, settings: LoraConfig) -> None:
    """Raise unless a stored adapter's settings are those of `settings`, as far as they decide what is trained."""
    names = ("r", "lora_alpha", "use_rslora", "use_dora")
    theirs, wanted = ({name: getattr(one, name, None) for name in names} for one in (found, settings))
    if theirs != wanted:
        what = f"the adapter to go on from has {theirs}, not {wanted}"
        raise ConfigError(what, "train.lora", "use its values, or set train.start_from to base")
    if other := sorted(_places(model, found) ^ _places(model, settings)):
        what = f"the adapter to go on from is on other modules than the settings name: {len(other)} differ, such as {other[0]}"
        raise ConfigError(what, "train.lora.target_modules", "name its modules, or set train.start_from to base")


def _places(model: PreTrainedModel, settings: Any) -> set[str]:
    """Return the names of the modules that an adapter with these settings is on."""
    resolved = _maybe_include_all_linear_layers(settings, model)
    return {name for name, _ in model.named_modules() if check_target_module_exists(resolved, name)}


def _shape(config: Lora) -> Options:
    """Return the settings that decide how an adapter's weights act."""
    variant = {"use_rslora": config.variant == "rslora", "use_dora": config.variant == "dora"}
    return {"r": config.rank, "lora_alpha": config.alpha, **variant}


def unfreeze(model: PreTrainedModel, init_adapter: str | None = None) -> PreTrainedModel:
    """Make every weight of `model` trainable, after merging the adapter in `init_adapter` into it."""
    if init_adapter is not None:
        model = merge_adapter(model, init_adapter)
    return model.requires_grad_(True)


def model_tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights of the model's files, whole, in the main process; every process has to call it."""
    return gather_on_main(written_tensors(model))


def adapter_tensors(model: PeftModel) -> dict[str, Tensor]:
    """Return the adapter's weights in the main process; every process has to call it."""
    return gather_on_main(get_peft_model_state_dict(model, save_embedding_layers=False))


def save_adapter(model: PeftModel, directory: Path, base_digest: str) -> None:
    """Write adapter_model.safetensors, and adapter_config.json with the base's digest instead of its path.

    Raises:
        TrainingError: a weight is not finite; nothing is written.
    """
    write_adapter(adapter_tensors(model), model.peft_config["default"].to_dict(), directory, base_digest)


def write_adapter(tensors: dict[str, Tensor], settings: JsonObject, directory: Path, base_digest: str) -> None:
    """Write the same files, given the tensors by peft's names, and peft's settings.

    Raises:
        TrainingError: a weight is not finite; nothing is written.
    """
    finite(tensors)
    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    settings |= {"base_model_name_or_path": f"sha256:{base_digest}", "inference_mode": True}
    text = json.dumps(settings, indent=2, sort_keys=True, default=sorted)  # sorted: peft holds sets, whose order is random
    (directory / "adapter_config.json").write_text(text + "\n")
