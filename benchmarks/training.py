"""How fast, and in how much memory, does clawpipe train, against TRL 1.16 on the same rows, model and loss?

    python benchmarks/training.py --out benchmarks/training.json

Workloads (training_data.py makes them), each one optimizer step over all of its rows:

- demo_groups: 8 items x 8 real rollouts of the demo, with a common preamble. TRL gets its default of 8 rows per micro-batch.
- demo_pairs: preference pairs of first turns of these rollouts, DPO, reference log-probs given to both.
- long_sessions: one session of 8 turns and 4096 tokens as a gateway captures it: a request per turn, each with its whole
  history, so 8 rows of 512 to 4096 tokens. Both sides get these rows. clawpipe trains the shared part once; TRL cannot share,
  and gets one row per micro-batch and pairs of neighbouring turns to pad alike, the least that it can compute and hold.
- long_sessions_as_rows: two such sessions as one row each, all turns trained, which TRL can do by `env_mask` where histories
  only grow. Nothing is shared, so the head, the padding and the loop remain to compare.

Long sessions run on a model of the same shape with random weights, with gradient checkpointing on both sides (TRL's default).

Claims: 5 times TRL's trained tokens per second on demo groups, twice on long sessions in half the memory, and within 1.3 times
of the time that the FLOPs need at the machine's matmul rate (training_flops.py has the formulas). First both sides do one
step: loss and gradient norm must agree, or there is no comparison. Then they take turns; medians count. Peak memory is
measured in a separate process per side, above its memory with model and rows loaded. clawpipe runs with the malloc setting of
its training process (clawpipe/learn/children/memory.py), TRL with malloc's defaults.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
import transformers
from training_data import Shape, pair_first_turns, record_demo_groups, write_long_sessions, write_random_model
from training_flops import needed, seconds_needed
from training_memory import peak_above
from training_side import Clawpipe, Side, Update, Workload

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.training import Train
from clawpipe.model.policy.base import resolve_base

GOALS = {
    "demo_groups_tokens_per_s": (5.0, math.inf),
    "long_sessions_tokens_per_s": (2.0, math.inf),
    "long_sessions_peak_memory": (0.0, 0.5),
}
FLOP_GOAL = 1.3
_TOLERANCE = 1e-4  # absolute for the loss, relative for the gradient norm; float32 gives 1e-6 on small models
_SIDES = ("clawpipe", "trl")
_WEIGHED = ("demo_groups", "long_sessions")  # workloads whose peak memory is measured, in two more processes each


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.measure:
        print(json.dumps(_measure_memory(arguments.measure, Workload.model_validate_json(sys.stdin.read()))))
        return 0
    result = _measure(arguments)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result) if arguments.json else json.dumps(result, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct", help="built-in base model; `random` is a smoke test")
    parser.add_argument("--repeats", type=int, default=3, help="timed updates a side and workload")
    parser.add_argument("--only", nargs="*", help="workloads")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--measure", choices=_SIDES, help=argparse.SUPPRESS)
    return parser


def _measure(arguments: argparse.Namespace) -> JsonObject:
    torch.set_num_threads(arguments.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        workloads = _workloads(arguments.model, Path(directory), arguments.threads)
        chosen = [workload for workload in workloads if not arguments.only or workload.name in arguments.only]
        results = {workload.name: _compare(workload, arguments.repeats) for workload in chosen}
    return {
        "conditions": _conditions(arguments, load_before),
        "workloads": results,
        "ratios": _ratios(results),
        "missed": _missed(_ratios(results), results),
    }


def _workloads(model: str, directory: Path, threads: int) -> list[Workload]:
    base, small = resolve_base(model).path, model == "random"
    groups, sessions, rows = (directory / f"{name}.parquet" for name in ("groups", "sessions", "rows"))
    pairs, scores, untrained = directory / "pairs.parquet", directory / "scores.parquet", directory / "untrained"
    shape = Shape(turns=4, tokens=256, trained=8) if small else Shape()
    items = 2 if small else 8
    record_demo_groups(base, items, groups)
    pair_first_turns(groups, pairs, scores)
    vocabulary = write_random_model(base, untrained)
    write_long_sessions(shape, 1, vocabulary, sessions, by_turn=True)
    write_long_sessions(shape, 2, vocabulary, rows, by_turn=False)
    demo = {"base": base, "pack_tokens": Train().pack_tokens, "threads": threads}
    long = {"base": untrained, "pack_tokens": shape.tokens, "gradient_checkpointing": True, "threads": threads}
    least = {"batch": 1, "generation": 2, "group": 2}
    return [
        Workload(name="demo_groups", samples=groups, batch=8, generation=items, group=8, **demo),
        Workload(name="demo_pairs", method="dpo", samples=pairs, scores=(scores,), batch=_pair_batch(pairs), **demo),
        Workload(name="long_sessions", samples=sessions, **least, **long),
        Workload(name="long_sessions_as_rows", samples=rows, **least, **long),
    ]


def _pair_batch(pairs: Path) -> int:
    """Return the largest number of pairs up to 4 (8 rows per micro-batch) that divides them evenly."""
    count = pq.read_metadata(pairs).num_rows
    return next(size for size in (4, 3, 2, 1) if count % size == 0)


def _compare(workload: Workload, repeats: int) -> JsonObject:
    """Return both sides' figures, after checking that they compute the same."""
    sides = {name: _side(name, workload) for name in _SIDES}
    first = {name: side.update() for name, side in sides.items()}
    _require_equal(workload.name, first)
    updates: dict[str, list[Update]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            updates[name].append(side.update())
            print(f"{workload.name} {name}: {updates[name][-1].seconds:.2f} s", file=sys.stderr, flush=True)
    ours = sides["clawpipe"]
    assert isinstance(ours, Clawpipe)
    packs = ours.packs()
    seconds = {name: statistics.median(update.seconds for update in made) for name, made in updates.items()}
    need = needed(ours.model, packs)
    ideal = seconds_needed(need)
    sizes = {
        "rows": len(ours.rows),
        "row_tokens": sum(len(row.token_ids) for row in ours.rows),
        "trained_tokens": ours.trained_tokens,
        "packs": [pack["input_ids"].numel() for pack in packs],
        "gradient_checkpointing": workload.gradient_checkpointing,
        "pack_tokens": workload.pack_tokens,
        "trl_batch": {name: getattr(workload, name) for name in ("batch", "generation", "group")},
        "difference": {
            "loss": abs(first["clawpipe"].loss - first["trl"].loss),
            "grad_norm": abs(first["clawpipe"].grad_norm / first["trl"].grad_norm - 1),
        },
        "flops": need.flops,
        "matmul_gflops_per_s": need.flops / ideal / 1e9,
        "flop_seconds": ideal,
        "over_flop_time": seconds["clawpipe"] / ideal,
    }
    figures = {name: _figures(made, ours.trained_tokens) for name, made in updates.items()}
    if workload.name in _WEIGHED:
        figures = {name: made | {"peak_memory_mb": _peak_memory(name, workload)} for name, made in figures.items()}
    return sizes | figures


def _side(name: str, workload: Workload) -> Side:
    if name == "clawpipe":
        return Clawpipe(workload)
    from training_trl import Trl  # takes seconds, and memory that the other side's process should not use

    return Trl(workload)


def _require_equal(name: str, first: Mapping[str, Update]) -> None:
    ours, theirs = first["clawpipe"], first["trl"]
    if abs(ours.loss - theirs.loss) > _TOLERANCE or abs(ours.grad_norm - theirs.grad_norm) > _TOLERANCE * theirs.grad_norm:
        sys.exit(f"{name}: the sides do not compute the same, so their times say nothing: {ours} against {theirs}")


def _figures(made: list[Update], trained_tokens: int) -> JsonObject:
    seconds = [update.seconds for update in made]
    return {"seconds": seconds, "tokens_per_s": trained_tokens / statistics.median(seconds), "loss": made[-1].loss}


def _peak_memory(side: str, workload: Workload) -> float:
    """Return MB above the loaded model for one optimizer step in a separate process."""
    command = [sys.executable, __file__, "--measure", side]
    done = subprocess.run(command, input=workload.model_dump_json(), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])["peak_memory_mb"]


def _measure_memory(name: str, workload: Workload) -> dict[str, float]:
    torch.set_num_threads(workload.threads)
    side = _side(name, workload)
    return {"peak_memory_mb": peak_above(side.update) / 2**20}


def _ratios(results: Mapping[str, Any]) -> dict[str, float]:
    """Return clawpipe's figures over TRL's."""
    ratios: dict[str, float] = {}
    for name, result in results.items():
        for figure in {"tokens_per_s", "peak_memory_mb"} & result["trl"].keys():
            ratios[f"{name}_{figure.removesuffix('_mb')}"] = round(result["clawpipe"][figure] / result["trl"][figure], 3)
    return dict(sorted(ratios.items()))


def _missed(ratios: Mapping[str, float], results: Mapping[str, Any]) -> list[str]:
    missed = [name for name, (least, most) in GOALS.items() if name in ratios and not least <= ratios[name] <= most]
    slow = [f"{name}_over_flop_time" for name, result in results.items() if result["over_flop_time"] > FLOP_GOAL]
    return missed + slow


def _conditions(arguments: argparse.Namespace, load: float) -> JsonObject:
    libraries = ("torch", "transformers", "peft", "trl", "accelerate")
    return {
        "model": arguments.model,
        "dtype": "float32",
        "adapter": "LoRA rank 16, all linear layers",
        "repeats": arguments.repeats,
        "threads": arguments.threads,
        "cores": os.cpu_count(),
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "machine": platform.machine(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in libraries},
    }


if __name__ == "__main__":
    sys.exit(main())
