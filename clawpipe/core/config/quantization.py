"""Quantizations: their names, and the combinations that no library supports.

Each rule was measured with transformers 5.23, peft 0.21, bitsandbytes 0.50 and torchao 0.18; docs/quantization.md has the table.
"""

from __future__ import annotations

from typing import Literal

Quantization = Literal["none", "nf4", "int8", "int8-torchao", "fp8", "int4-torchao"]

GPU_ONLY = ("fp8", "int4-torchao")
SHARDABLE = ("none", "nf4")  # FSDP2 cannot shard the others


def training_obstacle(quantization: Quantization, adapter: str, variant: str) -> str | None:
    """Return why a base with this quantization cannot be trained, and what to use instead; None if it can.

    Args:
        quantization: model.quantization.
        adapter: train.adapter.
        variant: train.lora.variant.
    """
    if quantization != "none" and adapter == "full":
        return (
            f"a base loaded with quantization {quantization} is frozen and cannot be trained whole: "
            "set train.adapter to lora, or model.quantization to none and quantize the result with serving.quantization"
        )
    if quantization == "int4-torchao":
        return "no gradient goes through int4-torchao weights: set model.quantization to nf4"
    if quantization == "int8" and variant == "dora":
        return "dora fails on int8 weights: set model.quantization to int8-torchao or nf4, or train.lora.variant to lora"
    return None


def serving_obstacle(artifact: str, served: Quantization, dtype: str) -> str | None:
    """Return why an artifact cannot be served with this quantization, and what to use instead; None if it can.

    Args:
        artifact: serving.artifact.
        served: serving.quantization.
        dtype: model.dtype, in which merged weights are kept.
    """
    if served != "none" and artifact == "adapter":
        return (
            "serving.quantization applies to merged weights, and an adapter is served beside its base: "
            "set serving.artifact to merged, or quantize the base it is trained on with model.quantization"
        )
    if served == "int4-torchao" and dtype != "bfloat16":
        return "int4-torchao computes in bfloat16 alone: set model.dtype to bfloat16, or serving.quantization to nf4"
    return None


def device_obstacle(field: str, quantization: Quantization, device: str) -> str | None:
    """Return why a device does not support the quantization, and what to use instead; `auto` is checked when a night starts."""
    if quantization in GPU_ONLY and device.startswith("cpu"):
        instead = "nf4" if quantization == "int4-torchao" else "int8-torchao"
        return f"{quantization} needs a GPU: set {field} to {instead} where runtime.device is {device}"
    return None
