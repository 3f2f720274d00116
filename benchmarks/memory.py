"""Does `clawpipe plan --hardware` estimate the memory that training takes? Trains random Llamas on this CPU.

    python benchmarks/memory.py --out benchmarks/memory.json [--json]

Claim: the estimate is within 20 % of the measured peak. Each case is one process that trains two steps of two packs through the
trainer's own entry point. The measurement is the highest resident memory in training, minus that of the process before it read
any weights; the same part (Python and libraries) is left out of the estimate.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config import NightConfig
from clawpipe.model.planning.architecture import Architecture, from_config
from clawpipe.model.planning.memory import training

MIB = 1 << 20
SHAPES = {
    "11M": {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 8, "num_attention_heads": 4, "vocab_size": 8192},
    "50M": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8, "vocab_size": 32000},
    "135M": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "vocab_size": 49152},
}
KV_HEADS = {"11M": 4, "50M": 4, "135M": 3}
TIED = {"11M": False, "50M": False, "135M": True}
CASES: list[tuple[str, JsonObject]] = [
    ("11M", {"train.pack_tokens": 512}),
    ("11M", {"train.pack_tokens": 2048}),
    ("50M", {"train.pack_tokens": 512, "train.adapter": "full"}),
    ("50M", {"train.pack_tokens": 2048}),
    ("50M", {"train.pack_tokens": 2048, "train.adapter": "full"}),
    ("50M", {"train.pack_tokens": 2048, "train.gradient_checkpointing": True}),
    ("50M", {"train.pack_tokens": 512, "train.lora.variant": "dora"}),
    ("50M", {"train.pack_tokens": 512, "model.dtype": "bfloat16"}),
    ("50M", {"train.pack_tokens": 512, "model.dtype": "bfloat16", "train.adapter": "full"}),
    ("50M", {"train.pack_tokens": 2048, "model.dtype": "bfloat16", "train.adapter": "full"}),
    ("135M", {"train.pack_tokens": 512, "model.dtype": "bfloat16", "train.adapter": "full"}),
    ("50M", {"train.pack_tokens": 512, "model.quantization": "nf4"}),
    ("50M", {"train.pack_tokens": 512, "model.quantization": "int8-torchao"}),
    ("135M", {"train.pack_tokens": 512}),
    ("135M", {"train.pack_tokens": 2048}),
    ("135M", {"train.pack_tokens": 2048, "train.gradient_checkpointing": True}),
    ("135M", {"train.pack_tokens": 512, "train.adapter": "full"}),
    ("135M", {"train.pack_tokens": 512, "train.adapter": "full", "train.gradient_checkpointing": True}),
]


def settings(changes: JsonObject) -> NightConfig:
    from clawpipe.core.config.load import with_settings

    return with_settings(NightConfig(), {"runtime.device": "cpu", "train.optimizer_steps": 2} | changes)


def shape(size: str) -> JsonObject:
    return SHAPES[size] | {
        "num_key_value_heads": KV_HEADS[size],
        "tie_word_embeddings": TIED[size],
        "max_position_embeddings": 4096,
    }


def compare(size: str, changes: JsonObject) -> JsonObject:
    """Return estimate and measurement of one case, in MiB."""
    config, model = settings(changes), from_config(size, shape(size))
    phase = training(model, config, "cpu")
    parts = {name: round(part / MIB, 1) for name, part in phase.parts.items() if name != "libraries"}
    measured = measure(model, config)
    estimate = sum(parts.values())
    return {
        "model": size,
        "changes": changes,
        "estimate_mib": round(estimate),
        "measured_mib": round(measured),
        "ratio": round(estimate / measured, 3),
        "moment": phase.moment,
        "parts_mib": parts,
    }


def measure(model: Architecture, config: NightConfig) -> float:
    """Return by how many MiB a child's resident memory rose."""
    with tempfile.TemporaryDirectory() as directory:
        spec = {"size": model.name, "config": config.model_dump(mode="json"), "directory": directory}
        command = [sys.executable, __file__, "--child", json.dumps(spec)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])["peak_mib"]


def child(spec: JsonObject) -> None:
    """Train, and print by how much the resident memory rose."""
    from clawpipe.learn.children.answer import prepare

    prepare(1, "cpu")
    from clawpipe.learn.training.run import train

    config, work = NightConfig.model_validate(spec["config"]), Path(spec["directory"])
    subprocess.run(
        [sys.executable, __file__, "--make", json.dumps(spec)], check=True
    )  # in another process, to spare this one's memory
    request = request_for(config, work)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    train(request, work, lambda metrics: None)
    print(json.dumps({"peak_mib": resident("VmHWM") - before}))


def make(spec: JsonObject) -> None:
    """Write random weights, and four rows, each of which fills a pack."""
    import numpy as np
    import pyarrow as pa
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from clawpipe.core.contracts.schema import schema_of
    from clawpipe.core.store.datasets import write_parquet

    config, work = NightConfig.model_validate(spec["config"]), Path(spec["directory"])
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**shape(spec["size"]))).save_pretrained(work / "base")
    generator, tokens = np.random.default_rng(0), config.train.pack_tokens
    mask = [position > tokens // 2 for position in range(tokens + 1)]
    given = {"policy_version": "v", "renderer_digest": "r", "rollout_index": 0, "temperature": 1.0, "weight": 1.0}
    rows = [
        given
        | {"trajectory_id": f"t{group}", "item_id": f"i{group}", "group_id": f"g{group}", "prompt_tokens": 1}
        | {"token_ids": generator.integers(0, 8000, tokens + 1).tolist(), "loss_mask": mask}
        | {"logprobs": [-10.0 * sampled for sampled in mask], "advantages": [1.0 * sampled for sampled in mask]}
        for group in range(4)
    ]
    write_parquet(pa.Table.from_pylist(rows, schema_of("samples")), work / "samples.parquet")


def request_for(config: NightConfig, work: Path) -> Any:
    from clawpipe.learn.training.request import TrainRequest

    return TrainRequest(
        samples=(str(work / "samples.parquet"),),
        base=str(work / "base"),
        base_digest="0" * 64,
        dtype=config.model.dtype,
        quantization=config.model.quantization,
        config=config.train,
        temperature=1.0,
        seed=0,
        device="cpu",
        threads=1,
        output=str(work / "outcome"),
    )


def resident(field: str) -> float:
    """Return a field of /proc/self/status in MiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def table(rows: list[JsonObject]) -> str:
    heading = f"{'model':6} {'settings':52} {'estimated':>9} {'measured':>9} {'ratio':>6}"
    return "\n".join([heading, *map(line, rows)])


def line(row: JsonObject) -> str:
    changes = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in row["changes"].items())
    return f"{row['model']:6} {changes:52} {row['estimate_mib']:>5} MiB {row['measured_mib']:>5} MiB {row['ratio']:>6.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the result there as JSON")
    parser.add_argument("--json", action="store_true", help="print it as JSON instead of a table")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the cases to run, from 0")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--make", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make(json.loads(options.make))
    elif options.child:
        child(json.loads(options.child))
    else:
        report(options)


def report(options: argparse.Namespace) -> None:
    rows = []
    for number in options.only or range(len(CASES)):
        rows.append(compare(*CASES[number]))
        print(line(rows[-1]), file=sys.stderr, flush=True)
    result = {
        "conditions": {"python": platform.python_version(), "machine": platform.machine(), "threads": 1},
        "claim": "0.8 <= ratio <= 1.2",
        "worst_ratio": max((row["ratio"] for row in rows), key=lambda ratio: abs(ratio - 1)),
        "rows": rows,
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2) if options.json else table(rows))


if __name__ == "__main__":
    main()
