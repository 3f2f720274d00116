"""How fast are trainer and engine on one GPU? Runs each config of configs/sizes with random weights of its model's shape.

    python benchmarks/gpu.py --out benchmarks/gpu.json [--json] [--only 7b-16gb]
    python benchmarks/gpu.py --smoke --json      # a tiny shape, on the CPU as well

Each config is a separate process whose memory is capped at that of the GPU in the file's name, minus what driver and libraries
take. It trains steps of two packs of random tokens and then generates a shard. Nothing depends on the text, so all matrices of
a shape are read from one, which fits where a real checkpoint would not; on the GPU each has separate memory.

Before them, it runs the check of a model that a night begins with, in bfloat16 and nf4. Reported: seconds per step, tokens per
second, model FLOPs utilisation (training_flops.py over the peak of the GPU), the allocator's peak beside the planner's estimate,
sampled tokens per second. A config that fails is reported with its error.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from training_data import Shape, write_long_sessions
from training_flops import needed
from training_side import Clawpipe, Workload
from transformers import LlamaConfig, LlamaForCausalLM

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config import NightConfig, load_config
from clawpipe.core.config.load import with_settings
from clawpipe.core.config.night import Model, Runtime
from clawpipe.core.config.training import Train
from clawpipe.learn.evaluation.model_check import compare_model
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.planning.architecture import Architecture, architecture_of
from clawpipe.model.planning.hardware import named
from clawpipe.model.planning.memory import row_tokens, training
from clawpipe.model.policy.spec import untrained_spec
from clawpipe.play.workers.pool import WorkerPool

ROOT = Path(__file__).parents[1]
SIZES = ROOT / "configs" / "sizes"
GOAL = 0.35  # share of the GPU's peak
CHECKED = "smollm2-135m-instruct"  # real weights, since random ones show fewer errors
PEAKS = {"H200": 989.0, "H100": 989.0, "A100": 312.0, "4090": 165.0}  # dense bf16 TFLOP/s with float32 sums
SMOKE = {"model.base": "random", "train.pack_tokens": 128, "curation.max_tokens": 256} | {
    "rollouts.shard_rollouts": 2,
    "rollouts.max_new_tokens": 8,
    "runtime.device": "cpu",
}
_REPEATS = 3
_PACKS = 2


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.smoke, arguments.peak_tflops)))
        return 0
    if not arguments.smoke and not torch.cuda.is_available():
        print("there is no GPU; --smoke runs a tiny shape on the CPU", file=sys.stderr)
        return 1
    names = arguments.only or sorted(file.stem for file in SIZES.glob("*.yaml"))
    result = {
        "conditions": conditions(arguments.smoke),
        "goal": {"mfu": GOAL},
        "checks": checks(arguments.smoke),
        "configs": {name: _in_a_process(name, arguments) for name in names},
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result) if arguments.json else json.dumps(result, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the result there as well")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--only", nargs="*", help="names of configs, e.g. 7b-16gb")
    parser.add_argument("--peak-tflops", type=float, help="dense bf16 peak for MFU; known for H100, H200, A100 and RTX 4090")
    parser.add_argument("--smoke", action="store_true", help="a tiny shape on the CPU")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser


def checks(smoke: bool) -> JsonObject:
    """Return the distances of engine and trainer from the model's forward, in nats, in bfloat16 and on an nf4 base."""
    base, runtime = "random" if smoke else CHECKED, Runtime(device="cpu" if smoke else "cuda", workers=1)
    half = Model(base=base, dtype="bfloat16")
    return {"bfloat16": _check(half, runtime), "nf4": _check(half.model_copy(update={"quantization": "nf4"}), runtime)}


def _check(model: Model, runtime: Runtime) -> JsonObject:
    with tempfile.TemporaryDirectory() as scratch, WorkerPool(runtime, Path(scratch)) as pool:
        compared = compare_model(pool, Path(scratch), untrained_spec(model), Train(), runtime)
        return {found.part: found.model_dump() | {"allowed": bound._asdict()} for found, bound in compared}


def _in_a_process(name: str, arguments: argparse.Namespace) -> JsonObject:
    peak = ["--peak-tflops", str(arguments.peak_tflops)] if arguments.peak_tflops else []
    command = [sys.executable, __file__, "--one", name, *peak, *(["--smoke"] if arguments.smoke else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"error": f"ended with code {done.returncode}"}


def measure(name: str, smoke: bool, peak_tflops: float | None) -> JsonObject:
    """Return the figures of one config, measured in this process."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic algorithms need it
    config = load_config(SIZES / f"{name}.yaml")
    config = with_settings(config, SMOKE if smoke else {"runtime.device": "cuda"})
    model = architecture_of(config.model.base)
    phase = training(model, config, "gpu")
    allowance = phase.bytes - phase.parts["libraries"]
    figures: JsonObject = {"model": model.name, "parameters": model.parameters, "planned_gib": allowance / 2**30}
    if not smoke:
        figures["cap_gib"] = _cap(named(name.split("-")[1]).bytes - phase.parts["libraries"])
    weights = (
        patch("clawpipe.model.policy.load.AutoModelForCausalLM", RandomWeights),
        patch("clawpipe.model.policy.load.require_here"),
    )
    with tempfile.TemporaryDirectory() as directory, weights[0], weights[1]:  # no file holds them
        base = Path(directory) / "base"
        llama_of(model).save_pretrained(base)
        for part, work in (("training", _train), ("rollouts", _generate)):
            try:
                figures[part] = work(config, model, base, peak_tflops)
            except (RuntimeError, ImportError) as error:  # out of memory, or a missing quantizer
                figures[part] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            _release()
    return figures


def llama_of(model: Architecture) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=model.vocabulary,
        hidden_size=model.hidden,
        intermediate_size=model.intermediate,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        head_dim=model.head_size,
        tie_word_embeddings=model.tied,
        max_position_embeddings=model.context,
    )


class RandomWeights:
    """Replaces `AutoModelForCausalLM`: makes a model of random weights from a directory with only a config.json."""

    @staticmethod
    def from_pretrained(base: Path, config: LlamaConfig | None = None, **options: Any) -> LlamaForCausalLM:
        config, made = config or LlamaConfig.from_pretrained(base), {}
        with torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in LlamaForCausalLM(config).state_dict().items()}
        for shape in set(shapes.values()):
            made[shape] = torch.ones(shape) if len(shape) == 1 else 0.02 * torch.randn(shape)
            made[shape] = made[shape].to(options["dtype"])
        weights = {name: made[shape] for name, shape in shapes.items()}
        return LlamaForCausalLM.from_pretrained(None, config=config, state_dict=weights, **options)


def _train(config: NightConfig, model: Architecture, base: Path, peak_tflops: float | None) -> JsonObject:
    sessions, tokens = base.parent / "sessions.parquet", config.train.pack_tokens
    write_long_sessions(Shape(turns=8, tokens=tokens, trained=tokens // 16), _PACKS, model.vocabulary, sessions, by_turn=True)
    side = Clawpipe(
        Workload(
            name="update",
            samples=sessions,
            base=base,
            pack_tokens=tokens,
            gradient_checkpointing=config.train.gradient_checkpointing,
            threads=os.cpu_count() or 1,
            device=config.runtime.device,
            dtype=config.model.dtype,
            adapter=config.train.adapter,
            lora=config.train.lora,
            quantization=config.model.quantization,
        )
    )
    side.update()  # compiles, and creates the optimizer's state
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    made = [side.update() for _ in range(_REPEATS)]
    seconds, packs = statistics.median(update.seconds for update in made), side.packs()
    flops, peak = needed(side.model, packs).flops, (peak_tflops or _peak()) * 1e12
    return {
        "seconds": [update.seconds for update in made],
        "packs": [pack["input_ids"].numel() for pack in packs],
        "loss": made[-1].loss,
        "trained_tokens_per_s": side.trained_tokens / seconds,
        "tokens_per_s": sum(pack["input_ids"].numel() for pack in packs) / seconds,
        "flops": flops,
        **({"mfu": flops / seconds / peak} if peak else {}),
        **_memory(training(model, config, "gpu")),
    }


def _memory(phase: Any) -> dict[str, float]:
    """Return the allocator's peaks in GiB, and the planner's estimate over what was allocated."""
    if not torch.cuda.is_available():
        return {}
    peak, planned = torch.cuda.max_memory_allocated(), phase.bytes - phase.parts["libraries"]
    reserved = torch.cuda.max_memory_reserved()
    return {"peak_allocated_gib": peak / 2**30, "peak_reserved_gib": reserved / 2**30, "planned_over_peak": planned / peak}


def _generate(config: NightConfig, model: Architecture, base: Path, peak_tflops: float | None) -> JsonObject:
    """Generate a shard's first turn after different prompts, each as long as the planner assumes."""
    assert config.rollouts
    rows, new = config.rollouts.shard_rollouts, config.rollouts.max_new_tokens
    engine = EmbeddedEngine(base, None, config.model.dtype, config.runtime.device, config.model.quantization)
    length = min(512, row_tokens(model, config) - new)
    prompts = torch.randint(0, model.vocabulary, (rows, length), generator=torch.Generator().manual_seed(0)).tolist()
    begun = time.perf_counter()
    conversations = engine.begin(prompts)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    prefilled = time.perf_counter()
    turns = conversations.sample({row: row for row in range(rows)}, Sampling(config.rollouts.temperature, new))
    sampled = sum(len(turn.ids) for turn in turns.values())
    return {
        "rows": rows,
        "prompt_tokens": rows * length,
        "sampled_tokens": sampled,
        "prefill_seconds": prefilled - begun,
        "sampled_tokens_per_s": sampled / (time.perf_counter() - prefilled),
    }


def _cap(size: float) -> float:
    """Limit this process to `size` bytes of the GPU; return the GiB that it has."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(size / total, 1.0))
    return min(size, total) / 2**30


def _peak() -> float:
    """Return TFLOP/s; 0 if unknown."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return next((peak for part, peak in PEAKS.items() if part in name), 0.0)


def _release() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def conditions(smoke: bool) -> JsonObject:
    """Return where this ran."""
    libraries = ("torch", "transformers", "peft", "accelerate", "bitsandbytes")
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    gpu = not smoke and torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if gpu else "cpu",
        "driver": subprocess.run(query, capture_output=True, text=True).stdout.strip() if gpu else None,
        "cuda": torch.version.cuda,
        "peak_tflops": _peak() or None,
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in libraries},
        "repeats": _REPEATS,
        "packs_an_update": _PACKS,
    }


if __name__ == "__main__":
    sys.exit(main())
