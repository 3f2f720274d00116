"""LoRA adapters: put on a base model, and written as bytes that depend on the weights alone."""

from __future__ import annotations

import json
from pathlib import Path

from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import PreTrainedModel

from clawpipe.config.training import Lora
from clawpipe.errors import ConfigError


def attach_trainable(model: PreTrainedModel, config: Lora, init_adapter: str | None = None) -> PeftModel:
    """A fresh adapter on `model`, or one to go on from. The base is frozen either way.

    Raises:
        ConfigError: the adapter to go on from has another rank or alpha than the settings say.
    """
    if init_adapter is None:
        targets = config.target_modules if isinstance(config.target_modules, str) else list(config.target_modules)
        fresh = LoraConfig(
            r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules=targets, task_type="CAUSAL_LM"
        )
        return get_peft_model(model, fresh)
    grown = PeftModel.from_pretrained(model, init_adapter, is_trainable=True, use_safetensors=True)
    wanted = {"r": config.rank, "lora_alpha": config.alpha}
    found = {name: getattr(grown.peft_config["default"], name, None) for name in wanted}
    if found != wanted:
        raise ConfigError(
            f"the adapter to go on from has {found}, not {wanted}",
            "train.lora",
            "use its values, or set train.start_from to base",
        )
    return grown


def save_adapter(model: PeftModel, directory: Path, base_digest: str) -> None:
    """Write adapter_model.safetensors and adapter_config.json, which names the base by digest instead of by path."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = get_peft_model_state_dict(model, save_embedding_layers=False)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    facts = model.peft_config["default"].to_dict()
    facts |= {"base_model_name_or_path": f"sha256:{base_digest}", "inference_mode": True}
    text = json.dumps(facts, indent=2, sort_keys=True, default=sorted)  # sorted: peft holds sets, whose order is random
    (directory / "adapter_config.json").write_text(text + "\n")
