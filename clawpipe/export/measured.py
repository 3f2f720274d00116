"""Measure written weights against the policy that they were made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from clawpipe.errors import TrainingError
from clawpipe.json_types import JsonObject
from clawpipe.policy.agreement import Agreement, agreement, bound_of
from clawpipe.policy.load import load_policy, resolve_device
from clawpipe.policy.probe import forward_logprobs, probe_for
from clawpipe.policy.quantization import align_training_with_inference
from clawpipe.policy.spec import PolicySpec


def require_same(policy: PolicySpec, directory: Path, quantized: bool) -> JsonObject:
    """Return how far the log-probs of the weights in `directory` are from those of the policy, on a short English text.

    Args:
        quantized: the weights have the policy's quantization; else they are compared with the policy in full precision.

    Returns:
        largest, mean: distances in nats per token; tokens: their number.

    Raises:
        TrainingError: they are further apart than the dtype's rounding explains.
    """
    quantization = policy.quantization if quantized else "none"
    device, adapter = resolve_device("auto"), Path(policy.adapter) if policy.adapter else None
    model = load_policy(Path(policy.base), adapter, policy.dtype, device, quantization)
    probe = probe_for(model, Path(policy.base))
    expected = _logprobs(model, probe.prompts)
    del model  # one of them at a time is in memory
    found = agreement("export", "apart", _logprobs(_written(directory, policy.dtype, device), probe.prompts), expected)
    _require(found, policy, directory, quantized)
    return {"largest": found.largest, "mean": found.mean, "tokens": found.tokens}


def _require(found: Agreement, policy: PolicySpec, directory: Path, quantized: bool) -> None:
    bound = bound_of(policy.dtype, policy.quantization if quantized else "none")
    if not found.within(bound):
        raise TrainingError(
            f"the written weights' log-probs are {found.largest:.3g} nats off the policy's, {found.mean:.2g} on average (over "
            f"{found.tokens} tokens; allowed {bound.largest:g} and {bound.mean:g})",
            str(directory),
            "export it merged" if quantized else "export the adapter, which an engine puts on the base unmerged",
        )


def _logprobs(model: Any, rows: list[list[int]]) -> list[float]:
    return [value for row in forward_logprobs(model, rows) for value in row]


def _written(directory: Path, dtype: str, device: torch.device) -> Any:
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=getattr(torch, dtype), device_map={"": device}, use_safetensors=True, trust_remote_code=False
    )
    align_training_with_inference(model)  # some CPUs would run nf4 in bfloat16
    return model.eval()
