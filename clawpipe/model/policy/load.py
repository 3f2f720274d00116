"""Load a policy: base weights, and an adapter if there is one."""

from __future__ import annotations

import threading
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from clawpipe.core.config.quantization import Quantization
from clawpipe.errors import ConfigError
from clawpipe.model.policy.base import require_here, verify_base
from clawpipe.model.policy.quantization import align_training_with_inference, loading_options, require

# transformers replaces a function of its classes while it loads (`no_tie_weights`): of two loads at once, one would leave it
# replaced, and no model that the process loads would be tied any more.
_LOADING = threading.Lock()
_NOISE = ("dropout", "pdrop", "jitter_noise")  # parts of names of settings that add noise


def resolve_device(device: str) -> torch.device:
    """Return the torch device; `auto` is the first GPU, or the CPU without one.

    Raises:
        ConfigError: a GPU is asked for, and there is none.
    """
    name = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device {device!r} is not there", "runtime.device", "use auto or cpu")
    return torch.device(name)


def load_base(base: Path, dtype: str, device: torch.device, quantization: Quantization = "none") -> PreTrainedModel:
    """Load the base model in `dtype` (a torch dtype's name), for inference; with a quantization, its linear layers in fewer bits.

    Raises:
        ConfigError: this machine does not support the quantization, or the weights are not on it.
        DataError: a file of the model has changed since the model was resolved.
    """
    require(quantization, device.type)
    require_here(Path(base))
    verify_base(Path(base))
    precision = getattr(torch, dtype)
    options = loading_options(quantization, precision, device)
    with _LOADING:
        model = AutoModelForCausalLM.from_pretrained(
            base, config=_without_noise(base), dtype=precision, use_safetensors=True, trust_remote_code=False, **options
        )
    if quantization == "none":
        model.to(device)  # pyright: ignore[reportArgumentType]  # transformers declares `to` as torch's overloads, unbound
    model.eval()
    align_training_with_inference(model)
    return model


def _without_noise(base: Path) -> PreTrainedConfig:
    """Return the model's config without dropout, which some families have by default: training must compute what sampling does."""
    config = AutoConfig.from_pretrained(base, trust_remote_code=False)
    for part in {id(part): part for part in (config, config.get_text_config())}.values():
        for name, value in vars(part).items():
            if isinstance(value, float) and any(word in name for word in _NOISE):
                setattr(part, name, 0.0)
    return config


def load_policy(
    base: Path,
    adapter: Path | None,
    dtype: str,
    device: torch.device,
    quantization: Quantization = "none",
) -> PreTrainedModel:
    """Load a policy for inference. The adapter is not merged, because low precision would round it away."""
    core = load_base(base, dtype, device, quantization)
    if adapter is not None:
        PeftModel.from_pretrained(core, adapter, is_trainable=False, use_safetensors=True).eval()  # works in place, on `core`
    return core
