"""clawpipe's trainer on a GPU: tokens a second, MFU and peak memory of one session of 8192 tokens in bf16.

The models have the shapes of Qwen2.5-0.5B and Llama-3.2-1B and random weights: nothing here depends on what they say. MFU
is what training_flops.py counts, over the time it took, over the peak that is given. A way to train that this machine
lacks a library or the memory for is reported with its error.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from training_data import Shape, write_long_sessions
from training_flops import needed
from training_side import Clawpipe, Workload
from transformers import LlamaConfig, LlamaForCausalLM

_REPEATS = 5
_SHAPE = Shape(turns=8, tokens=8192, trained=128)
_SIZES: dict[str, dict[str, Any]] = {
    "0.5b": {"vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
    | {"num_attention_heads": 14, "num_key_value_heads": 2},
    "1b": {"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
    | {"num_attention_heads": 32, "num_key_value_heads": 8},
}
_WAYS: dict[str, dict[str, Any]] = {"lora": {}, "nf4": {"quantization": "nf4"}, "full": {"adapter": "full"}}


def measure_gpu(size: str, peak_tflops: float, ways: list[str]) -> dict[str, Any]:
    """One row a way to train, and the conditions."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic algorithms ask for it
    with tempfile.TemporaryDirectory() as directory:
        base, sessions = Path(directory) / "base", Path(directory) / "sessions.parquet"
        torch.manual_seed(0)
        config = LlamaConfig(**_SIZES[size], max_position_embeddings=_SHAPE.tokens, tie_word_embeddings=True)
        LlamaForCausalLM(config).bfloat16().save_pretrained(base)
        write_long_sessions(_SHAPE, 1, config.vocab_size, sessions, by_turn=True)
        rows = {way: _attempt(way, base, sessions, peak_tflops, False) for way in ways}
        rows |= {f"{way}, gradient checkpointing": _attempt(way, base, sessions, peak_tflops, True) for way in ways}
    return {"conditions": _conditions(size, peak_tflops), "rows": rows}


def _attempt(way: str, base: Path, sessions: Path, peak_tflops: float, checkpointing: bool) -> dict[str, Any]:
    workload = Workload(
        name=way,
        samples=sessions,
        base=base,
        pack_tokens=_SHAPE.tokens,
        gradient_checkpointing=checkpointing,
        threads=os.cpu_count() or 1,
        device="cuda",
        dtype="bfloat16",
        **_WAYS[way],
    )
    torch.cuda.empty_cache()
    try:
        return _figures(Clawpipe(workload), peak_tflops)
    except (RuntimeError, ImportError) as error:  # out of memory, or a quantiser that is not there
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}


def _figures(side: Clawpipe, peak_tflops: float) -> dict[str, Any]:
    side.update()
    torch.cuda.reset_peak_memory_stats()
    seconds = [side.update().seconds for _ in range(_REPEATS)]
    middle, packs = statistics.median(seconds), side.packs()
    need = needed(side.model, packs)
    return {
        "seconds": seconds,
        "trained_tokens_per_s": side.trained_tokens / middle,
        "tokens_per_s": sum(pack["input_ids"].numel() for pack in packs) / middle,
        "mfu": need.flops / middle / (peak_tflops * 1e12),
        "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def _conditions(size: str, peak_tflops: float) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name(),
        "model": f"Llama of {size}, random weights",
        "sizes": _SIZES[size],
        "dtype": "bfloat16",
        "session": _SHAPE._asdict(),
        "peak_tflops": peak_tflops,
        "repeats": _REPEATS,
        "libraries": {name: version(name) for name in ("torch", "transformers", "peft")},
    }
