"""Measure written weights against the policy that they were made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import TrainingError
from clawpipe.model.policy.agreement import Agreement, Bound, agreement, bound_of
from clawpipe.model.policy.load import load_policy, resolve_device
from clawpipe.model.policy.probe import forward_logprobs, probe_for
from clawpipe.model.policy.quantization import align_training_with_inference
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.serve.export.forms import GgufForm
from clawpipe.serve.export.gguf.write import read_back

GGUF_BOUNDS: dict[GgufForm, Bound] = {
    "gguf-f16": Bound(0.1, 0.01),
    "gguf-q8_0": Bound(1.0, 0.15),
    "gguf-q4_1": Bound(10.0, 1.2),
}


def require_same(policy: PolicySpec, directory: Path, quantized: bool) -> JsonObject:
    """Return how far the log-probs of the weights in `directory` are from those of the policy, on a short English text.

    Args:
        quantized: the weights have the policy's quantization; else they are compared with the policy in full precision.

    Returns:
        largest, mean: distances in nats per token; tokens: their number.

    Raises:
        TrainingError: they are further apart than the dtype's rounding explains.
    """
    whole = policy if quantized else policy.model_copy(update={"quantization": "none"})
    found = _distance(whole, lambda device: _written(directory, policy.dtype, device))
    fix = "export it merged" if quantized else "export the adapter, which an engine puts on the base unmerged"
    return _within(found, bound_of(whole.dtype, whole.quantization), directory, fix)


def require_near(policy: PolicySpec, directory: Path, form: GgufForm) -> JsonObject:
    """Return how far a GGUF file, read back by transformers, is from the policy in float32, as `require_same` does.

    Raises:
        TrainingError: it is further than the bits of its form explain.
    """
    whole = policy.model_copy(update={"quantization": "none", "dtype": "float32"})
    config = AutoConfig.from_pretrained(policy.base, trust_remote_code=False)
    found = _distance(whole, lambda device: read_back(directory, config, device))
    return _within(found, GGUF_BOUNDS[form], directory, "export it with more bits, or merged")


def _distance(policy: PolicySpec, written: Callable[[torch.device], Any]) -> Agreement:
    device, adapter = resolve_device("auto"), Path(policy.adapter) if policy.adapter else None
    model = load_policy(Path(policy.base), adapter, policy.dtype, device, policy.quantization)
    probe = probe_for(model, Path(policy.base))
    expected = _logprobs(model, probe.prompts)
    del model  # one of them at a time is in memory
    return agreement("export", "apart", _logprobs(written(device), probe.prompts), expected)


def _within(found: Agreement, bound: Bound, directory: Path, fix: str) -> JsonObject:
    if not found.within(bound):
        raise TrainingError(
            f"the written weights' log-probs are {found.largest:.3g} nats off the policy's, {found.mean:.2g} on average (over "
            f"{found.tokens} tokens; allowed {bound.largest:g} and {bound.mean:g})",
            str(directory),
            fix,
        )
    return {"largest": found.largest, "mean": found.mean, "tokens": found.tokens}


def _logprobs(model: Any, rows: list[list[int]]) -> list[float]:
    return [value for row in forward_logprobs(model, rows) for value in row]


def _written(directory: Path, dtype: str, device: torch.device) -> Any:
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=getattr(torch, dtype), device_map={"": device}, use_safetensors=True, trust_remote_code=False
    )
    align_training_with_inference(model)  # some CPUs would run nf4 in bfloat16
    return model.eval()
