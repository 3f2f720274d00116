"""Weights in fewer bits: the names, and which combinations no library can do.

Each rule was measured with transformers 5.23, peft 0.21, bitsandbytes 0.50 and torchao 0.18; docs/quantization.md has the table.
"""

from __future__ import annotations

from typing import Literal

Quantization = Literal["none", "nf4", "int8", "int8-torchao", "fp8", "int4-torchao"]

GPU_ONLY = ("fp8", "int4-torchao")
SHARDABLE = ("none", "nf4")  # FSDP2 can cut no other between processes


def training_obstacle(held: Quantization, adapter: str, variant: str) -> str | None:
    """Why nothing can be trained on a base that is held so, and what to use instead.

    Args:
        held: model.quantization.
        adapter: train.adapter.
        variant: train.lora.variant.
    """
    if held != "none" and adapter == "full":
        return (
            f"a base held in {held} is frozen and cannot be trained whole: "
            "set train.adapter to lora, or model.quantization to none and quantise the result with serving.quantization"
        )
    if held == "int4-torchao":
        return "no gradient goes through int4-torchao weights: set model.quantization to nf4"
    if held == "int8" and variant == "dora":
        return "dora fails on int8 weights: set model.quantization to int8-torchao or nf4, or train.lora.variant to lora"
    return None


def serving_obstacle(artefact: str, served: Quantization, dtype: str) -> str | None:
    """Why an artefact cannot be served so, and what to use instead.

    Args:
        artefact: serving.artifact.
        served: serving.quantization.
        dtype: model.dtype, in which merged weights are kept.
    """
    if served != "none" and artefact == "adapter":
        return (
            "serving.quantization is of merged weights, and an adapter is served beside its base: "
            "set serving.artifact to merged, or quantise the base it is trained on with model.quantization"
        )
    if served == "int4-torchao" and dtype != "bfloat16":
        return "int4-torchao computes in bfloat16 alone: set model.dtype to bfloat16, or serving.quantization to nf4"
    return None


def device_obstacle(field: str, quantization: Quantization, device: str) -> str | None:
    """Why the weights cannot be held so on a device, and what to use instead; `auto` is judged when a night starts."""
    if quantization in GPU_ONLY and device.startswith("cpu"):
        instead = "nf4" if quantization == "int4-torchao" else "int8-torchao"
        return f"{quantization} needs a GPU: set {field} to {instead} where runtime.device is {device}"
    return None
