"""Quantization of weights on loading, through transformers.

Three settings differ from the libraries' defaults, because a token's log-prob must be the same wherever it is computed:
alone or in a batch, in sampling and in training.

- LLM.int8 looks for outliers among all tokens of a call, so a token's result depends on its neighbours, even later ones.
  Threshold 0 turns that off: then the log-probs of a text and of its prefixes agree; with the default 6 they differ by
  0.2 nats per token (SmolLM2-135M).
- On CPU, LLM.int8 rounds activations in generation and not in training: 0.03 nats per token.
- On CPUs with AVX512-BF16, NF4 computes in bfloat16 in generation, whatever the model's dtype, and not in training.

A fourth saves memory: torchao would keep every layer's dequantized weights for the backward pass.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import TYPE_CHECKING, Any

from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.quantization import GPU_ONLY, Quantization
from clawpipe.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

_LIBRARIES = {"nf4": "bitsandbytes", "int8": "bitsandbytes", "int8-torchao": "torchao", "fp8": "torchao", "int4-torchao": "torchao"}


def require(quantization: Quantization, device: str, where: str = "model.quantization") -> None:
    """Check that this machine supports the quantization; imports no library.

    Args:
        device: type of the device, cpu or cuda.
        where: the setting that asks for the quantization.

    Raises:
        ConfigError: the machine has no GPU that it needs, or a library is missing.
    """
    if quantization == "none":
        return
    if quantization in GPU_ONLY and device != "cuda":
        raise ConfigError(f"{quantization} needs a GPU, and there is none", where, "use int8-torchao or nf4 instead")
    library = _LIBRARIES[quantization]
    if importlib.util.find_spec(library) is None:
        missing = f"{quantization} needs {library}, which is not installed"
        raise ConfigError(missing, where, "pip install 'clawpipe[quant]'")


def loading_options(quantization: Quantization, dtype: torch.dtype, device: torch.device) -> Options:
    """Return arguments of `from_pretrained` that quantize all linear layers except the output head on loading."""
    if quantization == "none":
        return {}
    scheme = _bitsandbytes(quantization, dtype) if _LIBRARIES[quantization] == "bitsandbytes" else _torchao(quantization)
    return {"quantization_config": scheme, "device_map": {"": device}}  # quantized weights cannot be moved later


def align_training_with_inference(model: PreTrainedModel) -> None:
    """Make frozen quantized layers compute the same in training and inference (see the module's docstring)."""
    from clawpipe.model.policy.frozen_linear import frozen_linear  # loads torch, which `require` does not need

    module: Any
    for module in model.modules():
        match type(module).__name__:
            case "Linear8bitLt":
                module.train = partial(_ignore_mode, module)
            case "Linear4bit":
                module.support_avx512bf16_for_cpu = False
            case "Linear" if type(module.weight).__module__.startswith("torchao."):
                module.forward = partial(frozen_linear, module)


def _ignore_mode(module: nn.Module, mode: bool = True) -> nn.Module:
    """Replacement for `train`: the module stays in evaluation mode."""
    return module


def _bitsandbytes(quantization: Quantization, dtype: torch.dtype) -> Any:
    from transformers import BitsAndBytesConfig

    if quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
    )


def _torchao(quantization: Quantization) -> Any:
    """Return a config that quantizes weights only, so that no token influences another. Torchao's "inductor settings" would lower
    the precision of every float32 matrix product in the process, so they stay off."""
    from torchao.quantization import Float8WeightOnlyConfig, Int4WeightOnlyConfig, Int8WeightOnlyConfig
    from torchao.quantization.quantize_.workflows import Int4PackingFormat
    from transformers import TorchAoConfig

    match quantization:
        case "int8-torchao":
            return TorchAoConfig(Int8WeightOnlyConfig(set_inductor_config=False))
        case "fp8":
            return TorchAoConfig(Float8WeightOnlyConfig(set_inductor_config=False))
        case _:  # of torchao's layouts, the one with kernels in torch itself
            tiles = Int4PackingFormat.TILE_PACKED_TO_4D
            return TorchAoConfig(Int4WeightOnlyConfig(group_size=128, int4_packing_format=tiles, set_inductor_config=False))
